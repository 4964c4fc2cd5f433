"""Beyond the paper: how capsules and the CNN carry over to new objects and new viewpoints, as tables."""

from experiments.cells import CROPS, Cell
from experiments.tables import NOT_RUN, Results, doubts, error_text, trained_as
from torchcaps.runs.text import NOTHING, Table, percent


def objects_table(title: str, cells: list[Cell], results: Results) -> Table:
    """smallNORB's test toys, which are not in training: one crop, and the mean over several."""
    columns = ["network", "seed", "test error", f"{CROPS} crops", "training error", "of"]
    rows = []
    for cell in cells:
        found = results.get(cell.job.name)
        if found is None:
            rows.append([*cell.labels, NOT_RUN, NOTHING, NOTHING, NOTHING])
            continue
        crops = NOTHING if found.crops_error is None else percent(found.crops_error)
        training = percent(found.training[-1]) if found.training else NOTHING
        of = "; ".join([trained_as(found), *doubts(cell, found, results)])
        rows.append([*cell.labels, error_text(found), crops, training, of])
    note = (
        "Both cameras; trained on the whole training split, the test split evaluated at the end, with the last weights."
    )
    return Table(title, columns, rows, note)


def viewpoints_table(title: str, cells: list[Cell], results: Results) -> Table:
    """turntable's test toys from viewpoints that are in training, and from others."""
    columns = ["viewpoints differ in", "network", "seed", "familiar viewpoints", "new viewpoints", "of"]
    rows = []
    for cell in cells:
        found = results.get(cell.job.name)
        if found is None:
            rows.append([*cell.labels, NOTHING, NOT_RUN, NOTHING])
            continue
        familiar = NOTHING if found.familiar_error is None else percent(found.familiar_error)
        of = "; ".join([trained_as(found), *doubts(cell, found, results)])
        rows.append([*cell.labels, familiar, error_text(found), of])
    note = "Trained on six azimuths or on the three lowest elevations (Hinton et al. 2018); test toys are always new."
    return Table(title, columns, rows, note)
