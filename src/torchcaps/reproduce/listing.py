"""The runs of a target, as a table for a terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from torchcaps.reproduce.cells import TARGETS, Experiments, Job, Times
from torchcaps.reproduce.results import Places
from torchcaps.reproduce.states import state_of
from torchcaps.reproduce.tables import paper_text


def listing(experiments: Experiments, jobs: Sequence[Job], places: Places) -> Table:
    """Each with the paper's error and how far it is."""
    paper = {cell.job.name: cell.paper for target in TARGETS for cell in experiments.cells(target) if cell.paper}
    table = Table("run", "data", "network", "epochs", "paper", "state")
    for job in jobs:
        state = state_of(job, places)
        about = ("", "", "")
        if not isinstance(job, Times):
            about = job.recipe.data, job.recipe.model, str(job.recipe.epochs)
        words = f"{state.words}; of another recipe: {'; '.join(state.differs)}" if state.differs else state.words
        table.add_row(
            Text(job.name, overflow="fold"), *about, paper_text(paper.get(job.name)), Text(words, overflow="fold")
        )
    return table
