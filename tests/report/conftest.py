"""A run folder without a run: the files that training leaves, and a tiny network that learned nothing."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from torchcaps.classifier import Classifier, Evaluation, evaluate
from torchcaps.data.pipeline import Pipeline
from torchcaps.data.types import Split
from torchcaps.runs.metrics import COLUMNS


class FakeRun(NamedTuple):
    folder: Path
    classifier: Classifier
    test: Split
    evaluation: Evaluation
    rows: list[dict[str, Any]]


def metrics(epochs: int, *, decoder: bool, validation: bool, spread: bool) -> list[dict[str, Any]]:
    """Two rows an epoch, of 10 and 5 steps."""
    rows = []
    for half in range(2 * epochs):
        epoch, is_end = half // 2, half % 2 == 1
        rows.append(
            {
                "step": 15 * epoch + (15 if is_end else 10),
                "epoch": epoch + (1.0 if is_end else 2 / 3),
                "seconds": 1.5 * (half + 1),
                "images_per_second": 100.0,
                "rate": 0.002,
                "margin": 0.2 + 0.1 * half if spread else "",
                "loss": 0.9 / (half + 1),
                "output_loss": 0.8 / (half + 1),
                "reconstruction_loss": 0.1 / (half + 1) if decoder else "",
                "training_error": 0.6 / (half + 1),
                "validation_error": 0.7 / (half + 1) if validation and is_end else "",
                "validation_loss": 0.75 / (half + 1) if validation and is_end else "",
            }
        )
    return rows


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., FakeRun]:
    def make(
        *,
        model: str = "hybrid32",
        decoder: bool = True,
        channels: int = 1,
        classes: tuple[str, ...] = ("apple", "boat", "cat"),
        images: int = 24,
        validation: bool = True,
        epochs: int = 4,
        result: dict[str, Any] | None = None,
    ) -> FakeRun:
        generator = torch.Generator().manual_seed(0)
        torch.manual_seed(0)
        options: dict[str, Any] = {"num_classes": len(classes), "in_channels": channels, "image_size": 16}
        options |= {"first_channels": 16, "conv_init": "torch"}
        if model == "hybrid32":
            options["decoder"] = decoder
        else:
            decoder = False
        classifier = Classifier(model, options, Pipeline(crop=16, resize=20), classes)
        pixels = torch.randint(0, 256, (images, channels, 24, 24), dtype=torch.uint8, generator=generator)
        test = Split(pixels, torch.arange(images) % len(classes))
        evaluation = evaluate([classifier], test)
        rows = metrics(epochs, decoder=decoder, validation=validation, spread=model == "hybrid32")
        folder = tmp_path / "run"
        folder.mkdir()
        with (folder / "metrics.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        data = {"set": "fruit", "note": "", "classes": classes, "train": 150, "validation": 15, "test": images}
        card = {
            "recipe": {
                "name": "fruit-quick",
                "data": {"data": None, "options": {}},
                "network": {"model": model},
                "optimisation": {"epochs": epochs, "learning_rate": 0.002},
            },
            "name": "fruit-quick",
            "seed": 7,
            "versions": {"torchcaps": "0.1.0", "torch": torch.__version__, "python": "3.11"},
            "machine": "a small one",
            "started": "2026-01-02T03:04:05+00:00",
            "threads": 1,
            "processes": 1,
            "data": data,
        }
        (folder / "run.json").write_text(json.dumps(card))
        found = {
            "test_error": evaluation.error,
            "test_images": images,
            "validation_error": rows[-1]["validation_error"] or None if rows else None,
            "best_validation_error": None,
            "weights": "last",
            "epochs": epochs,
            "steps": 15 * epochs,
            "seconds": 161.0,
            "images_per_second": 100.0,
        }
        (folder / "result.json").write_text(json.dumps({**found, **(result or {})}))
        return FakeRun(folder, classifier, test, evaluation, rows)

    return make
