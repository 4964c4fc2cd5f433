"""Choosing a backend: by function, by context, by environment; what serves, and what a refusal says."""

import subprocess
import sys
import warnings
from unittest import mock

import pytest
import torch
from torch.testing import assert_close

from torchcaps import BackendUnavailableError, Capsules, use_backend
from torchcaps.functional import Gaussian, Mahalanobis
from torchcaps.nn import CapsuleConv2d, PoseResidual, PrimaryCapsules, record_routing
from torchcaps.ops import backend, dispatch, native


def capsules(dtype: torch.dtype = torch.float32) -> Capsules:
    return Capsules(torch.randn(2, 32, 4, 4, dtype=dtype), torch.rand(2, 2, 4, 4, dtype=dtype))


def test_the_native_core_is_built() -> None:
    assert native.core is not None, native.MISSING
    assert native.core.capabilities()["vector_path"] in ("avx2", "baseline")


def test_function_and_context_manager() -> None:
    before = backend.requested_backend()
    with use_backend("compiled"):
        assert backend.requested_backend() == "compiled"
        with use_backend("reference"):
            assert backend.requested_backend() == "reference"
        assert backend.requested_backend() == "compiled"
    try:
        use_backend("reference")
        assert backend.requested_backend() == "reference"
    finally:
        use_backend(before)


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match=r"'gpu'.*auto, native, triton, compiled, reference"):
        use_backend("gpu")
    with pytest.raises(ValueError, match=r"'gpu'.*auto, native, triton, compiled, reference"):
        use_backend("native", residual="gpu")
    assert backend.requested_backend() != "gpu"


# What each operation calls in the core, and a call of it.
CALLS = {
    "routing": ("forward", lambda: CapsuleConv2d(2, 3)(capsules())),
    "primary": ("primary_forward", lambda: PrimaryCapsules(1, 2)(torch.randn(2, 1, 8, 8))),
    "residual": (
        "residual_forward",
        lambda: PoseResidual(2)(Capsules(torch.randn(9, 32, 8, 8), torch.rand(9, 2, 8, 8))),
    ),
}


@pytest.mark.parametrize("operation", backend.OPERATIONS)
@pytest.mark.parametrize("name", [name for name in backend.BACKENDS if name != "triton"])  # not on a CPU
def test_the_choice_means_the_same_for_every_operation(
    name: str, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = mock.Mock(wraps=native.core)
    monkeypatch.setattr(native, "core", core)
    called, call = CALLS[operation]

    def is_native() -> bool:
        core.reset_mock()
        with torch.no_grad():
            call()
        return called in {name for name, *_ in core.method_calls}

    with use_backend(name):
        assert is_native() == (name in ("auto", "native"))
    with use_backend("reference", **{operation: name}):
        assert is_native() == (name in ("auto", "native"))
    with use_backend("native", **{operation: "reference"}):
        assert not is_native()
    monkeypatch.setattr(native, "core", None)
    monkeypatch.setattr(native, "MISSING", "the native core is not built (for this test)")
    if name == "native":
        with use_backend(name), pytest.raises(BackendUnavailableError, match="not built"):
            call()


def test_environment_variable() -> None:
    code = "from torchcaps.ops.backend import requested_backend as b; print(b())"
    run = [sys.executable, "-c", code]
    found = subprocess.run(run, env={"TORCHCAPS_BACKEND": "reference"}, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "reference"
    wrong = subprocess.run(run, env={"TORCHCAPS_BACKEND": "gpu"}, capture_output=True, text=True, check=False)
    assert "TORCHCAPS_BACKEND='gpu': expected one of auto" in wrong.stderr


@pytest.mark.parametrize(
    ("layer", "dtype", "reason"),
    [
        (CapsuleConv2d(2, 3, routing="agreement"), torch.float32, "not by agreement"),
        (CapsuleConv2d(2, 3, distance="inner"), torch.float32, "distances l1 and l2, not 'inner'"),
        (CapsuleConv2d(2, 3, distance=Mahalanobis(torch.ones(16))), torch.float32, "distances l1 and l2"),
        (CapsuleConv2d(2, 3).double(), torch.float64, "float32.*torch.float64"),
    ],
)
def test_what_the_core_does_not_cover(layer: torch.nn.Module, dtype: torch.dtype, reason: str) -> None:
    value = capsules(dtype)
    with use_backend("reference"):
        wanted = layer(value)
    with use_backend("auto"):
        assert_close(layer(value), wanted, rtol=0, atol=0)
    with use_backend("native"), pytest.raises(BackendUnavailableError, match=reason):
        layer(value)


def test_torch_func_transforms_use_the_reference() -> None:
    layer, value = CapsuleConv2d(2, 3), capsules()

    def loss(pose: torch.Tensor) -> torch.Tensor:
        return layer(Capsules(pose, value.activation)).activation[:, 0].sum()

    with use_backend("auto"):
        found = torch.func.grad(loss)(value.pose)
    pose = value.pose.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(pose), pose)
    assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    with use_backend("native"), pytest.raises(BackendUnavailableError, match=r'torch\.func.*"reference"'):
        torch.func.grad(loss)(value.pose)


def test_forward_mode_derivatives_use_the_reference() -> None:
    model = torch.nn.Sequential(PrimaryCapsules(3, 2), CapsuleConv2d(2, 3))
    image, along = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)

    def derivative() -> torch.Tensor:
        with torch.autograd.forward_ad.dual_level():
            pose, _ = model(torch.autograd.forward_ad.make_dual(image, along))
            return torch.autograd.forward_ad.unpack_dual(pose).tangent

    with use_backend("reference"):
        wanted = derivative()
    with use_backend("auto"):
        assert_close(derivative(), wanted)
    with use_backend("native"), pytest.raises(BackendUnavailableError, match=r'forward-mode.*"reference"'):
        derivative()


def test_compiled_equals_reference_for_any_batch_size() -> None:
    layer = CapsuleConv2d(2, 3)
    for batch in (2, 5):
        value = Capsules(torch.randn(batch, 32, 4, 4), torch.rand(batch, 2, 4, 4))
        results = []
        for name in ("compiled", "reference"):
            layer.zero_grad()
            with use_backend(name):
                output = layer(value)
            output.pose.square().sum().add(output.activation[:, 0].sum()).backward()
            results.append((output.pose, output.activation, layer.weight.grad, layer.beta.grad, layer.beta0.grad))
        assert_close(*results, rtol=1e-4, atol=1e-5)


def test_compiled_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with use_backend("compiled"), pytest.raises(BackendUnavailableError, match=r"needs a C\+\+ compiler"):
        CapsuleConv2d(2, 3)(capsules())


def test_the_same_object_opens_several_blocks() -> None:
    before = backend.requested_backend()
    reference = use_backend("reference")
    for _ in range(2):
        with reference:
            assert backend.requested_backend() == "reference"
        assert backend.requested_backend() == before


def test_a_kernel_of_the_users_is_not_taken_for_its_base() -> None:
    class Halved(Gaussian):
        def value(self, x: torch.Tensor) -> torch.Tensor:
            return super().value(x) / 2

    layer = CapsuleConv2d(2, 3, kernel=Halved())
    with use_backend("native"), pytest.raises(BackendUnavailableError, match="Halved"):
        layer(capsules())


def test_recording_runs_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = CapsuleConv2d(2, 3)
    monkeypatch.setattr(dispatch, "route_map", None)
    with use_backend("native"), record_routing(layer) as records:
        layer(capsules())
    assert records[""][0].coupling.shape == (2, 2, 2, 8, 3)


def test_without_the_core_one_warning_and_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "core", None)
    monkeypatch.setattr(native, "MISSING", "the native core is not built (for this test)")
    dispatch.warn_of_missing_core.cache_clear()
    layer, value = CapsuleConv2d(2, 3), capsules()
    with use_backend("auto"):
        with pytest.warns(UserWarning, match="not built"):
            first = layer(value)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_close(layer(value), first, rtol=0, atol=0)
    with use_backend("native"), pytest.raises(BackendUnavailableError, match="not built"):
        layer(value)
    dispatch.warn_of_missing_core.cache_clear()


def test_a_map_that_does_not_fit_is_refused_in_every_backend() -> None:
    layer = CapsuleConv2d(2, 3, kernel_size=5)
    for name in ("native", "reference"):
        with use_backend(name), pytest.raises(ValueError, match="5x5 field does not fit into a 4x4 map"):
            layer(capsules())


def test_an_offset_of_votes_with_a_gradient_uses_the_reference() -> None:
    layer, value = CapsuleConv2d(2, 3), capsules()
    offset = torch.zeros(8, 16, requires_grad=True)
    with use_backend("auto"):
        pose, _ = layer.route(value, layer.weight, layer.window, offset)
    assert torch.autograd.grad(pose.sum(), offset)[0].abs().max() > 0
    with use_backend("native"), pytest.raises(BackendUnavailableError, match="offset of votes as a constant"):
        layer.route(value, layer.weight, layer.window, offset)
