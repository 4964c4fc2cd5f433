"""A tiny network that was trained and exported as the shipped ones are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from data_files import idx_contents, put
from experiments.tools.export import export
from torchcaps.models import pretrained as shipped
from torchcaps.train import Recipe, train


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on noise in MNIST's format; not to be changed."""
    data = put(tmp_path_factory.mktemp("sets") / "mnist", idx_contents(train=40, test=30))
    recipe = Recipe.of(
        name="tiny",
        data="mnist",
        root=data,
        size=16,
        resize=18,
        first_channels=16,
        residual=False,
        conv_init="torch",
        transform_std=0.5,
        routing_options={"kernel": "gaussian"},
        validation="none",
        epochs=1,
        batch_size=8,
    )
    finished = train(recipe, output=tmp_path_factory.mktemp("run"))
    assert finished is not None
    return finished.folder


@pytest.fixture
def tiny(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the weights, with one network ``tiny``; the working folder is empty."""
    root = tmp_path / "weights"
    export(run, "tiny", note="noise", output=root)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setattr(shipped, "weights_folder", lambda: root)
    return root


@pytest.fixture(params=["package", "tiny"])
def root(request: pytest.FixtureRequest) -> Path:
    """Where all shipped networks are, and where the tiny one is."""
    if request.param == "tiny":
        return request.getfixturevalue("tiny")
    folder = shipped.weights_folder()
    assert folder is not None
    return folder
