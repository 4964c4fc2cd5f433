"""``--csv FILE``: the result of each image, one row per image."""

import csv
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path

from torch import Tensor

from torchcaps.data.writing import whole_file
from torchcaps.errors import OptionError


def check_target(path: Path | None) -> None:
    """Before the work is done: a file can be there."""
    if path is not None and path.expanduser().is_dir():
        raise OptionError(f"--csv {path} is a folder: expected the name of a file")


def write_csv(
    path: Path,
    classes: Sequence[str],
    activation: Tensor,
    *,
    files: Sequence[Path] = (),
    label: Tensor | None = None,
) -> None:
    """Of each image its file (its index, where it has none), classes and activations ``[N, classes]``.

    Without ``label`` there is no column of true classes.
    """
    named = ["file" if files else "index", *(["true_class"] if label is not None else [])]
    head = [*named, "predicted_class", "activation", *(f"activation_{name}" for name in classes)]
    truth = None if label is None else label.tolist()

    def rows() -> Iterable[list[str]]:
        for place, (said, values) in enumerate(zip(activation.argmax(1).tolist(), activation.tolist(), strict=True)):
            true = [] if truth is None else [classes[truth[place]]]
            name = str(files[place]) if files else str(place)
            # nine digits: all that single precision has
            yield [name, *true, classes[said], *(f"{value:.9g}" for value in (values[said], *values))]

    text = StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows(rows())
    with whole_file(path.expanduser()) as file:
        file.write(text.getvalue().encode(errors="surrogateescape"))  # a file's name, byte by byte
