"""Model cards, and the page that lists them. Every number comes from the run's files or was measured on export."""

from dataclasses import dataclass
from typing import Any

from torchcaps.classifier.classifier import Classifier
from torchcaps.data.sources import SOURCES
from torchcaps.functional.registry import routing_method
from torchcaps.runs.text import count, duration, percent
from torchcaps.train.command_line import command_line
from torchcaps.train.recipe import Recipe

PAPER = 'S. Zhang, W. Zhao, X. Wu, Q. Zhou: "Fast Dynamic Routing Based on Weighted Kernel Density Estimation", 2018'


@dataclass(frozen=True)
class Pictures:
    """What a network has seen, for those who think of showing it something else."""

    of: str
    licence: str  # of the data and hence of the weights: an SPDX identifier, whose text is in weights/LICENSES
    cite: str = ""
    terms: str = "The same terms are handed on with these weights."


PICTURES = {
    "mnist": Pictures(
        "single handwritten digits, white on black, centred",
        "CC-BY-SA-3.0",
        'Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: "Gradient-Based Learning Applied to Document Recognition", 1998',
    ),
    "fashion-mnist": Pictures(
        "single pieces of clothing from the catalogue of one shop, light on black, centred",
        "MIT",
        'H. Xiao, K. Rasul, R. Vollgraf: "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning '
        'Algorithms", 2017',
    ),
    "cifar10": Pictures(
        "small colour photographs of single animals and vehicles, cut to the object",
        "LicenseRef-CIFAR-10",
        'A. Krizhevsky: "Learning Multiple Layers of Features from Tiny Images", 2009',
        "LICENSES/LicenseRef-CIFAR-10.txt says what that means for these weights.",
    ),
    "smallnorb": Pictures(
        "single toys of one colour in front of an even background, six lightings, seen from above at 30 to 70 degrees",
        "LicenseRef-smallNORB",
        'Y. LeCun, F. J. Huang, L. Bottou: "Learning Methods for Generic Object Recognition with Invariance to Pose '
        'and Lighting", CVPR 2004',
    ),
    "turntable": Pictures("single rendered objects in front of an even background", "Apache-2.0"),
}


@dataclass(frozen=True, kw_only=True)
class Export:
    """What is known of a network that is about to be shipped."""

    name: str
    classifier: Classifier  # as loaded from the shipped file
    recipe: Recipe
    run: dict[str, Any]  # run.json
    result: dict[str, Any]  # result.json
    note: str  # to be said of the data wherever there is an error
    unofficial: tuple[str, ...]  # files of the data that are not those that were published
    wrong: int  # by the shipped file, of all test images
    size: int  # of the weights in bytes

    @property
    def title(self) -> str:
        """The data's name, with what has to be said of it."""
        name = SOURCES[self.recipe.data.data].title if self.recipe.data.data in SOURCES else self.recipe.data.data
        return f"{name} ({self.note})" if self.note else name


def table(rows: dict[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def facts(export: Export) -> dict[str, str]:
    """The card's table."""
    run, result, network = export.run, export.result, export.classifier.network
    pipeline = export.classifier.pipeline
    in_decoder = sum(p.numel() for p in network.parameters()) - network.parameter_count()
    standardised = {
        "image": "each image standardised",
        "channel": "each channel of each image standardised",
        "set": "standardised by the training set",
        "none": "in [0, 1]",
    }
    familiar = result.get("familiar_error")
    return {
        "licence": PICTURES[export.recipe.data.data].licence,
        "**test error of this file, loaded to float32**": f"**{percent(export.wrong / result['test_images'])}** "
        f"({export.wrong:,} of {result['test_images']:,} images)",
        "test error of the run, in float32": percent(result["test_error"]),
        **({} if familiar is None else {"its error on familiar viewpoints": percent(familiar)}),
        "trained for": f"{count(result['epochs'], 'epoch')}, {count(result['steps'], 'step')}, "
        f"{duration(result['seconds'])}",
        "trained on": f"{run['data']['train']:,} images; {run['data']['note']}",
        "seed": str(run["seed"]),
        "machine": f"{run['machine']}, {count(run['threads'], 'thread')}, precision {run.get('precision') or '32'}",
        "versions": ", ".join(f"{name} {version}" for name, version in run["versions"].items()),
        "parameters": f"{network.parameter_count():,}"
        + (f", and {in_decoder:,} of the decoder" if in_decoder else "; there is no decoder"),
        "input": f"{network.in_channels} x {network.image_size} x {network.image_size}, the middle of images whose "
        f"shorter side is {export.classifier.source_size}; {standardised[pipeline.standardise]}",
        "classes": ", ".join(export.classifier.classes),
        "size": f"{export.size / 1e6:.1f} MB, half precision",
    }


def model_card(export: Export) -> str:
    """The text beside the weights."""
    seen, source = PICTURES[export.recipe.data.data], SOURCES.get(export.recipe.data.data)
    routing = routing_method(export.recipe.network.routing).label
    terms = "rendered by torchcaps."
    if source:
        terms = f"{source.licence}; {source.homepage}. {seen.terms}"
    if export.unofficial:
        terms += f"\n\nThese files of the run were not the official ones: {', '.join(export.unofficial)}."
    return f"""# {export.name}: {export.classifier.model} with {routing} routing, trained on {export.title}

Written by `python -m experiments.tools.export`; `model.json` has the whole recipe.

{table(facts(export))}

## Use

```python
import torchcaps

classifier = torchcaps.load("{export.name}")  # network, pipeline and names of the classes
print(classifier.predict(images).names)
```

The network alone: `torchcaps.create_model("{export.classifier.model}", pretrained="{export.name}")`.

## Data and its terms

{export.title}: {terms}

## Limits

It has seen {seen.of}, and nothing else.
It was not trained for, and not tested on, other sensors, backgrounds, colours, or several objects in one image; it
names one of its classes whatever it is shown. This is one run with one seed: another seed ends with another error.

## How it was made

```
{command_line(export.recipe)}
```

and then `python -m experiments.tools.export RUN_FOLDER {export.name}`, which rounds the weights to half precision.

## Citation

{"".join(f"- {cite}{chr(10)}" for cite in (PAPER, seen.cite) if cite)}"""


def index(manifest: dict[str, dict[str, Any]]) -> str:
    """The page that lists all networks of a manifest."""
    lines = ["| name | network | data | licence | epochs | test error | size |", "|---|---|---|---|---|---|---|"]
    for name, entry in sorted(manifest.items()):
        error = f"{percent(entry['wrong'] / entry['test_images'])} of {entry['test_images']:,} images"
        page, size = f"[{name}]({name}/README.md)", f"{entry['size'] / 1e6:.1f} MB"
        cells = [page, entry["model"], entry["data"], entry["licence"], str(entry["epochs"]), error, size]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(
        [
            "# Pretrained networks",
            "",
            "Trained capsule networks for torchcaps: in a clone `pip install ./weights`, then",
            '`torchcaps.load("mnist")`. **Each network has the licence of the data that it was trained on**, not that',
            "of torchcaps; the texts are in `LICENSES`.",
            "",
            "Written by `python -m experiments.tools.export` from `manifest.json`. Errors are those of the shipped",
            "files, measured after loading; each name leads to the model card.",
            "",
            *(lines if manifest else ["None yet."]),
            "",
        ]
    )
