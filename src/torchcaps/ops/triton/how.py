"""What a kernel is compiled for."""

from typing import NamedTuple


class How(NamedTuple):
    """Options and sizes of a call. Each combination is a compilation of its own."""

    method: str
    iterations: int
    kernel: str  # "linear" (Epanechnikov, not clipped), "clipped" or "gaussian"
    activation_kernel: str
    distance: str
    plain: bool  # normalize="sum"
    activation_bandwidth: float
    step: float
    inverse_temperatures: tuple[float, ...]  # EM's, of each iteration
    variance_floor: float
    inputs: int  # n, the input capsules of a place
    outputs: int  # J
    rows: int  # input capsules of a block, a power of two
    lanes: int  # J filled up to a power of two
    shared: bool = False  # all places have the same matrices
    has_offset: bool = False
    has_affine: bool = False
    many_inputs: bool = False  # for the launch parameters alone


def as_constants(how: How) -> How:
    """For a kernel: fields that are constants themselves, which Triton before 3.8 does not make of a tuple's."""
    import triton.language as tl

    return How(*(tl.constexpr(value) for value in how))
