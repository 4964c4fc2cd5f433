"""Whether an installed wheel works, in an environment of its own: torchcaps, torchcaps-weights and what they require.

``python tests/smoke.py``, without pytest and from any folder; not a test of the sources beside it.
"""

import json
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import torch

import torchcaps
from torchcaps.ops import native

NOT_REQUIRED = ("lightning", "matplotlib", "PIL", "pooch", "tensorboard")


def check_native_core() -> None:
    """It is there, and gives the output and the gradients of the reference."""
    assert not native.MISSING, native.MISSING
    torch.manual_seed(0)
    network = torchcaps.create_model("hybrid32")
    images = torch.rand(2, network.in_channels, 32, 32)
    found = {}
    for backend in ("native", "reference"):
        network.zero_grad()
        with torchcaps.use_backend(backend):
            activation = network(images).activation
            activation[:, 0].sum().backward()
        found[backend] = [activation, *(p.grad for p in network.parameters() if p.grad is not None)]
    torch.testing.assert_close(found["native"], found["reference"], rtol=1e-3, atol=1e-4)


def check_weights() -> None:
    """Every network loads by its name and gives an answer."""
    folder = Path(str(files("torchcaps_weights")))
    assert torchcaps.list_pretrained() == sorted(json.loads((folder / "manifest.json").read_text()))
    for name in torchcaps.list_pretrained():
        classifier = torchcaps.load(name)
        side = classifier.source_size
        answer = classifier.predict(torch.zeros(1, classifier.network.in_channels, side, side, dtype=torch.uint8))
        assert answer.names[0] in classifier.classes


if __name__ == "__main__":
    there = [name for name in NOT_REQUIRED if find_spec(name)]
    assert not there, f"{', '.join(there)}: expected an environment without them, to see that nothing needs them"
    check_native_core()
    check_weights()
    print(f"torchcaps {version('torchcaps')} and its weights work with torch {version('torch')}: {torchcaps.__file__}")
