"""Batch norm of two processes with half a batch each is that of one process with the whole."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist

from support import tiny_hybrid
from torchcaps.train.batch_norm import SharedBatchNorm2d, shared_batch_norm
from torchcaps.train.finite import not_finite

STEPS = 3
CASES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "mean over all batches": {"momentum": None},
    "no parameters": {"affine": False},
    "no statistics": {"track_running_stats": False},
    "in float32, far from zero": {"dtype": torch.float32, "offset": 100.0},
    "images in bfloat16": {"dtype": torch.float32, "image_dtype": torch.bfloat16},
    "channels last": {"memory_format": torch.channels_last},
    "frozen": {"frozen": True},
}


def run_case(
    part: slice,
    *,
    dtype: torch.dtype = torch.float64,
    image_dtype: torch.dtype | None = None,
    offset: float = 0.0,
    memory_format: torch.memory_format = torch.contiguous_format,
    frozen: bool = False,
    **options: Any,
) -> dict[str, Tensor]:
    """What a few steps on a part of the batch give, and leave."""
    norm = nn.BatchNorm2d(3, dtype=dtype, **options)
    network = nn.Sequential(norm).train(not frozen)
    generator = torch.Generator().manual_seed(0)
    found = {}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(3, generator=generator))
    for step in range(STEPS):
        images, towards = torch.randn(2, 6, 3, 4, 5, generator=generator, dtype=torch.float64)
        images = (images * torch.tensor([1.0, 0.1, 3.0]).view(3, 1, 1) + offset + step).to(image_dtype or dtype)
        leaf = images[part].contiguous(memory_format=memory_format).requires_grad_()
        output = network(leaf)
        assert output.dtype == images.dtype
        (output.square() * towards[part].to(dtype)).sum().backward()
        assert leaf.grad is not None
        found |= {f"{step} output": output.detach(), f"{step} gradient": leaf.grad}
    found |= {f"summed {name}": value.grad for name, value in norm.named_parameters() if value.grad is not None}
    return found | {f"same {name}": value for name, value in norm.named_buffers()}


def run_process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    original = nn.Sequential.forward

    def forward(self: nn.Sequential, image: Tensor) -> Tensor:
        with shared_batch_norm(self):
            assert type(self[0]) is SharedBatchNorm2d
            return original(self, image)  # type: ignore[no-any-return]

    nn.Sequential.forward = forward  # type: ignore[method-assign]
    found = {name: run_case(slice(2) if rank == 0 else slice(2, 6), **case) for name, case in CASES.items()}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    """What two processes found, with two and with four of six images."""
    folder = tmp_path_factory.mktemp("processes")
    torch.multiprocessing.spawn(run_process, (str(folder),), nprocs=2)  # type: ignore[no-untyped-call]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("case", CASES)
def test_two_processes_are_one(halves: list[dict[str, dict[str, Tensor]]], case: str) -> None:
    wanted = run_case(slice(6), **CASES[case])
    first, second = (half[case] for half in halves)
    assert first.keys() == second.keys() == wanted.keys()
    assert any("gradient" in name for name in wanted)
    of_case = 2e-2 if "image_dtype" in CASES[case] else 1e-3
    tolerance = {"rtol": of_case, "atol": of_case} if "dtype" in CASES[case] else {"rtol": 1e-9, "atol": 1e-12}
    for name, value in wanted.items():
        if name.startswith("same"):
            assert torch.equal(first[name], second[name])
            found = first[name]
        else:
            found = first[name] + second[name] if "summed" in name else torch.cat([first[name], second[name]])
        torch.testing.assert_close(found, value, **tolerance, msg=lambda text, name=name: f"{name}: {text}")


def test_networks_are_as_before_in_the_end() -> None:
    class Own(nn.BatchNorm2d):
        """Of somebody who knows better."""

    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Sequential(nn.BatchNorm2d(2)), Own(2))
    modules, names = list(network.modules()), list(network.state_dict())
    with shared_batch_norm(network):
        assert [type(module) for module in network.modules()].count(SharedBatchNorm2d) == 2
        assert type(network[3]) is Own
        assert list(network.state_dict()) == names
    assert all(module is before for module, before in zip(network.modules(), modules, strict=True))
    assert [type(module) for module in network.modules()].count(nn.BatchNorm2d) == 2
    network[1].eval()
    image = torch.rand(2, 2, 4, 4)
    wanted = network[1](image)
    with shared_batch_norm(network):
        assert torch.equal(network[1](image), wanted)  # nobody else is asked in evaluation


def test_images_of_another_shape_are_refused() -> None:
    norm = nn.BatchNorm2d(2)
    with pytest.raises(ValueError, match="expected 4D input"), shared_batch_norm(norm):
        norm(torch.zeros(2, 2))
    assert type(norm) is nn.BatchNorm2d


def test_looking_for_what_is_not_finite_waits_for_no_other_process() -> None:
    """There is no other here: a norm that asked for one would raise."""
    network = tiny_hybrid(norm="batch")
    with shared_batch_norm(network):
        with pytest.raises((RuntimeError, ValueError), match="process group"):
            network(torch.randn(2, 1, 8, 8))
        problem = not_finite({"output_loss": float("nan")}, network, torch.randn(2, 1, 8, 8))
        assert isinstance(network.primary.norm, SharedBatchNorm2d)  # as before
    assert problem is not None
    assert "every layer's output is finite" in problem[1]
