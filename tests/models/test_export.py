"""Programs of torch.export and torch.compile: sizes that are symbols, and files that other processes load."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from support import tiny_hybrid
from torchcaps import Classified, create_model, use_backend

NETWORKS = {
    "native": lambda: tiny_hybrid(),
    "normed": lambda: tiny_hybrid(norm="batch").eval(),
    "partly reference": lambda: tiny_hybrid(class_shared=True, class_coordinates=True, iterations=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_compiles_with_sizes_that_are_symbols(make) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    network = make()
    compiled = torch.compile(network, dynamic=True, fullgraph=True, backend="aot_eager")
    for batch in (3, 5):
        image = torch.randn(batch, 1, 8, 8)
        output = compiled(image)
        assert_close(tuple(output), tuple(network(image)), rtol=1e-4, atol=1e-5)
        output.activation.sum().backward()


def test_a_network_of_the_paper_compiles_with_symbols() -> None:
    torch._dynamo.reset()
    network, image = create_model("hybrid32", first_channels=16), torch.randn(2, 1, 32, 32)
    compiled = torch.compile(network, dynamic=True, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert_close(tuple(compiled(image)), tuple(network(image)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_a_saved_program_loads_where_torchcaps_is_imported_only(backend: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, image = tiny_hybrid(iterations=1).eval(), torch.randn(2, 1, 8, 8)
    with use_backend(backend):
        program = torch.export.export(network, (image,), dynamic_shapes={"image": {0: torch.export.Dim("batch")}})
    path = tmp_path / "network.pt2"
    torch.export.save(program, path, extra_files={"needs": "import torchcaps"})
    found = torch.export.load(path, extra_files=(notes := {"needs": ""})).module()(image)
    assert notes == {"needs": "import torchcaps"}
    assert isinstance(found, Classified)
    assert_close(tuple(found), tuple(network(image)))

    if backend == "native":  # elsewhere: an operator that is not there is named
        run = [sys.executable, "-c", f"import torch; torch.export.load({str(path)!r})"]
        without = subprocess.run(run, capture_output=True, text=True, check=False)
        assert without.returncode
        assert "torch.ops.torchcaps.primary" in without.stderr


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # checks of shapes are not traced
@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_a_traced_network_computes_the_same(make) -> None:
    torch.manual_seed(0)
    network, image = make().eval(), torch.randn(2, 1, 8, 8)
    traced = torch.jit.trace(network, image, strict=False)
    other = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        assert_close(tuple(traced(other)), tuple(network(other)), rtol=1e-4, atol=1e-5)
