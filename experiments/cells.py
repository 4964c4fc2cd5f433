"""The cells of the paper's tables, and the runs that fill them. Several cells may share a run."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

from experiments import paper
from experiments.budgets import Budget
from experiments.trials import DEFORMED, TRIALS, Trial
from torchcaps.bench.plan import Plan
from torchcaps.data.sources import SOURCES
from torchcaps.data.splits import ViewpointFactor
from torchcaps.functional.registry import routing_method
from torchcaps.train.recipe import Recipe

Target = Literal[
    "table1",
    "table2",
    "table3",
    "losses",
    "reconstructions",
    "claims",
    "iterations",
    "objects",
    "viewpoints",
    "trials",
    "all",
]
TARGETS: tuple[Target, ...] = get_args(Target)
TRIALS_PLACE, TIMES = "trials", "times"
CROPS = 13  # of test images, besides the one
TESTED_ITERATIONS = (1, 2, 3, 5)  # of networks that were trained with two
COMPARED = ("frem", "cnn")  # beyond the paper
SEEDS, FIVE_SEEDS = (0, 1), (0, 1, 2, 3, 4)
VIEWPOINTS: tuple[ViewpointFactor, ...] = ("azimuth", "elevation")
LABELS = {method: routing_method(method).label for method in paper.TABLE2} | {"cnn": "CNN"}
SHALLOW = {"frem": "headcaps32", "cnn": "cnn32"}  # three convolutions before the last layer
DEEP = {"frem": "headcaps64", "cnn": "cnn64"}  # four
UNMIXED: dict[str, Any] = {"cutmix": 0.0, "unmixed": 0.0}
LARGER: dict[str, Any] = {"size": 48, "resize": 64, "epochs": 15}
AT_FIRST: dict[str, Any] = LARGER | {"cutmix": 0.5, "unmixed": 0.25}  # the recipe's own; written out, as it may change


@dataclass(frozen=True, kw_only=True)
class Viewer:
    """A kind of runs for new viewpoints."""

    label: str
    changes: dict[str, Any] = field(default_factory=dict)  # to the recipe
    seeds: tuple[int, ...] = SEEDS


POOLED: dict[str, Any] = {"model": "poolcaps32"}
ONE_ITERATION: dict[str, Any] = {"iterations": 1}  # without routing
# The last two are the recipe's own, and have more seeds.
VIEWERS = {
    "head": Viewer(label="FREM, headcaps32"),
    "head-one-iteration": Viewer(label="one iteration, headcaps32", changes=ONE_ITERATION),
    "frem": Viewer(label="FREM, poolcaps32", changes=POOLED),
    "frem-one-iteration": Viewer(label="one iteration, poolcaps32", changes=POOLED | ONE_ITERATION),
    "cnn": Viewer(label=LABELS["cnn"]),
    "head-cutmix": Viewer(label="FREM, headcaps32, CutMix", changes=AT_FIRST, seeds=FIVE_SEEDS),
    "cnn-cutmix": Viewer(label=f"{LABELS['cnn']}, CutMix", changes=AT_FIRST, seeds=FIVE_SEEDS),
}


@dataclass(frozen=True, kw_only=True)
class Objects:
    """A kind of runs for new objects."""

    label: str
    changes: dict[str, Any]  # to the recipe
    models: dict[str, str] = field(default_factory=lambda: SHALLOW)
    seeds: tuple[int, ...] = SEEDS
    together: tuple[int, ...] = ()  # seeds whose networks also make an ensemble


# The last one is the recipe's own: errors by toy are drawn of it, and it has more seeds.
OBJECTS = {
    "objects": Objects(label="32x32", changes={"size": 32, "resize": 48, "epochs": 20, **UNMIXED}),
    "objects48-deep": Objects(label="48x48, deeper", changes=LARGER | UNMIXED, models=DEEP, seeds=(0,)),
    "objects48": Objects(label="48x48", changes=LARGER | UNMIXED),
    "objects48-cutmix": Objects(
        label="48x48, CutMix throughout", changes=AT_FIRST | {"epochs": 20, "unmixed": 0.0}, seeds=(0,)
    ),
    "objects48-cutmix-at-first": Objects(
        label="48x48, CutMix at first", changes=AT_FIRST, seeds=FIVE_SEEDS, together=(2, 3, 4)
    ),
}
TITLES = {name: source.title for name, source in SOURCES.items()}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training run."""

    place: str  # subfolder of the results and of the run folders
    name: str
    recipe: Recipe
    trial: Trial | None = None  # of which it is the run; then the test split is left alone
    crops: int = 1  # with so many, test images are evaluated once more
    by_object: bool = False  # whether errors on each of the test objects are recorded, too
    iterations: tuple[int, ...] = ()  # with so many of routing in every layer, test images are evaluated once more


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """Runs that differ in their seeds, evaluated together."""

    place: str
    name: str
    members: tuple[Run, ...]

    @property
    def recipe(self) -> Recipe:
        """But for the seed, that of all."""
        return self.members[0].recipe


@dataclass(frozen=True, kw_only=True)
class Times:
    """What inference and a training step take, measured together in one process."""

    place: str
    plan: Plan
    name: str = TIMES


Job = Run | Ensemble | Times


@dataclass(frozen=True, kw_only=True)
class Cell:
    """An error in a table."""

    labels: tuple[str, ...]  # in the table's first columns
    job: Run | Ensemble
    paper: float | None = None


class Experiments:
    """All that is run with a budget."""

    def __init__(self, budget: Budget, root: Path | None = None) -> None:
        """``root`` is where the data sets are, if not where they usually are."""
        self.budget, self.root = budget, root

    def cells(self, target: Target) -> list[Cell]:
        """The cells of a target; trials have none."""
        makers = {"table1": self._table1, "table2": self._table2, "table3": self._table3, "losses": self._losses}
        makers |= {"claims": self._claims, "reconstructions": self._reconstructions}
        makers |= {"iterations": self._iterations, "objects": self._objects, "viewpoints": self._viewpoints}
        return list(makers[target]()) if target in makers else []

    def jobs(self, target: Target) -> list[Job]:
        """What there is to do for a target, each thing once, in order."""
        if target == "all":
            return unique(job for one in TARGETS if one != "all" for job in self.jobs(one))
        if target == "trials":  # a rehearsal learns nothing from other folds
            rehearsal = self.budget.name == "quick"
            return [self._trial(trial) for trial in TRIALS if not (rehearsal and trial.recipe.data.fold)]
        found: list[Job] = []
        for cell in self.cells(target):
            found += [*cell.job.members, cell.job] if isinstance(cell.job, Ensemble) else [cell.job]
        if target == "table1":
            found.append(Times(place=self.budget.name, plan=self.budget.times))
        return unique(found)

    def main(self, data: str, method: str) -> Run | Ensemble:
        """The run of tables 1 and 3."""
        name, recipe = f"{data}-{method}", self.budget.main(data, method)
        seeds = self.budget.cifar10_seeds if data == "cifar10" else (recipe.optimisation.seed,)
        if len(seeds) == 1:
            return self._run(name, recipe.with_fields(seed=seeds[0]))
        members = tuple(self._run(f"{name}-seed{seed}", recipe.with_fields(seed=seed)) for seed in seeds)
        return Ensemble(place=self.budget.name, name=name, members=members)

    def on_smallnorb(self, method: str, seed: int = 0) -> Run:
        """Table 1's run; where it is repeated with other seeds, it is also tested object by object."""
        run = self.main("smallnorb", method)
        assert isinstance(run, Run)
        if seed:
            run = self._run(f"{run.name}-seed{seed}", self.budget.main("smallnorb", method).with_fields(seed=seed))
        return replace(run, by_object=method in COMPARED and len(self.budget.seeds) > 1)

    def ablation(self, method: str, iterations: int, std: float, suffix: str = "", **changes: Any) -> Run:
        """The run of a cell of table 2, or a variation of it; table 1's, where that is the same."""
        fields = {"iterations": iterations, "transform_std": std, **changes}
        recipe = self.budget.ablation(method).with_fields(**fields)
        run = self._run(f"ablation-{method}-{iterations}-{std}{suffix}", recipe)
        if self.tests_the_ablation and not changes and (iterations, std) == paper.DEFAULT:
            run = replace(run, iterations=TESTED_ITERATIONS)
        main = self.main("smallnorb", method)
        assert isinstance(main, Run)
        return main if main.recipe.with_fields(name=run.name) == run.recipe else run

    @property
    def tests_the_ablation(self) -> bool:
        """Whether it is a run of table 2 that is tested with other iterations."""
        return self.budget.iterations is self.budget.ablation

    def deformed(self, method: str) -> Run:
        """Table 1's run with training images that are stretched and turned besides."""
        main = self.main("smallnorb", method)
        return self._run(f"{main.name}-deformed", main.recipe.with_fields(**DEFORMED))

    def margin(self, method: str) -> Run:
        """The default run with the margin loss."""
        return self.ablation(method, *paper.DEFAULT, "-margin", loss="margin")

    def stacked_variant(self) -> Run:
        """The default run with Algorithm 3 in every layer."""
        return self.ablation("frms", *paper.DEFAULT, "-variant", routing="frms_variant")

    def without_residual(self) -> Run:
        """The default run of FREM without the residual blocks."""
        return self.ablation("frem", *paper.DEFAULT, "-no-residual", residual=False)

    def _run(self, name: str, recipe: Recipe) -> Run:
        recipe = recipe.with_fields(name=name, validation="none", weights="last")
        return Run(place=self.budget.name, name=name, recipe=self.budget.adapt(recipe, self.root))

    def _trial(self, trial: Trial) -> Run:
        rehearsal = self.budget.name == "quick"  # whose numbers must not be taken for the trial's
        name = f"trial-{trial.name}" if rehearsal else trial.name
        recipe = self.budget.adapt(trial.recipe.with_fields(name=name), self.root)
        return Run(place=self.budget.name if rehearsal else TRIALS_PLACE, name=name, recipe=recipe, trial=trial)

    def _table1(self) -> Iterator[Cell]:
        for method, row in paper.TABLE1.items():
            yield Cell(labels=(LABELS[method],), job=self.on_smallnorb(method), paper=row.error)
        for method, seed in product(COMPARED, self.budget.seeds[1:]):
            yield Cell(labels=(f"{LABELS[method]}, seed {seed}",), job=self.on_smallnorb(method, seed))
        if one_camera := self.budget.one_camera:
            for method in COMPARED:
                run = self._run(f"smallnorb-{method}-left", one_camera(method))
                labels = (f"{LABELS[method]}, left camera, 32x32",)
                yield Cell(labels=labels, job=run, paper=paper.TABLE1[method].error)
        for method in COMPARED if self.budget.deforms else ():
            yield Cell(labels=(f"{LABELS[method]}, images deformed",), job=self.deformed(method))

    def _table2(self) -> Iterator[Cell]:
        for method, cells in paper.TABLE2.items():
            for (iterations, std), error in cells.items():
                run = self.ablation(method, iterations, std)
                yield Cell(labels=(LABELS[method], str(iterations), str(std)), job=run, paper=error)
        std = paper.DEFAULT[1]
        for seed, method, iterations in product(self.budget.seeds[1:], paper.TABLE2, (1, 2)):  # what another seed moves
            run = self.ablation(method, iterations, std, f"-seed{seed}", seed=seed)
            yield Cell(labels=(f"{LABELS[method]}, seed {seed}", str(iterations), str(std)), job=run)

    def _table3(self) -> Iterator[Cell]:
        for data, errors in paper.TABLE3.items():
            for method, error in errors.items():
                yield Cell(labels=(TITLES[data], LABELS[method]), job=self.main(data, method), paper=error)

    def _losses(self) -> Iterator[Cell]:
        for method in paper.TABLE2:
            yield Cell(labels=("spread", LABELS[method]), job=self.ablation(method, *paper.DEFAULT))
        for method in paper.TABLE2:
            yield Cell(labels=("margin", LABELS[method]), job=self.margin(method))

    def _claims(self) -> Iterator[Cell]:
        yield from self._table2()
        yield from self._losses()
        yield Cell(labels=("Algorithm 3",), job=self.stacked_variant())
        yield Cell(labels=("FREM without residual blocks",), job=self.without_residual())

    def _reconstructions(self) -> Iterator[Cell]:
        """Of an ensemble the first run."""
        for data in ("smallnorb", *paper.TABLE3):
            for method in paper.TABLE2:
                job = self.main(data, method)
                run = job.members[0] if isinstance(job, Ensemble) else job
                if run.recipe.has_decoder:
                    yield Cell(labels=(TITLES[data], LABELS[method]), job=run)

    def _iterations(self) -> Iterator[Cell]:
        for method in paper.TABLE2:
            if self.tests_the_ablation:
                run = self.ablation(method, *paper.DEFAULT)
            else:
                run = self._run(f"iterations-{method}", self.budget.iterations(method))
                run = replace(run, iterations=TESTED_ITERATIONS)
            yield Cell(labels=(LABELS[method],), job=run)

    def _objects(self) -> Iterator[Cell]:
        if self.budget.objects is None:
            for method, seed in product(COMPARED, SEEDS):
                run = self.on_smallnorb(method, seed)
                size = run.recipe.images.size
                yield Cell(labels=(LABELS[method], f"{size}x{size}", str(seed)), job=run)
            return
        for (name, kind), method in product(OBJECTS.items(), COMPARED):
            recipe = self.budget.objects(method).with_fields(model=kind.models[method], **kind.changes)
            runs = {
                seed: self._run(f"{name}-{method}-seed{seed}", recipe.with_fields(seed=seed)) for seed in kind.seeds
            }
            for seed, run in runs.items():
                crops = CROPS if seed in SEEDS else 1  # they take minutes, and change little
                job = runs[seed] = replace(run, crops=crops, by_object=True)
                yield Cell(labels=(LABELS[method], kind.label, str(seed)), job=job)
            if kind.together:
                members = tuple(runs[seed] for seed in kind.together)
                ensemble = Ensemble(place=self.budget.name, name=f"{name}-{method}", members=members)
                seeds = ", ".join(map(str, kind.together))
                yield Cell(labels=(LABELS[method], kind.label, f"{seeds} together"), job=ensemble)

    def _viewpoints(self) -> Iterator[Cell]:
        if self.budget.viewpoints is None:
            return
        for factor in VIEWPOINTS:
            for name, viewer in VIEWERS.items():
                recipe = self.budget.viewpoints("cnn" if name.startswith("cnn") else "frem")
                for seed in viewer.seeds:
                    run = self._run(
                        f"viewpoints-{factor}-{name}" + (f"-seed{seed}" if seed else ""),
                        recipe.with_fields(viewpoint=factor, seed=seed, **viewer.changes),
                    )
                    yield Cell(labels=(factor, viewer.label, str(seed)), job=run)


def unique(jobs: Iterable[Job]) -> list[Job]:
    """Each once, where it came first."""
    return list({(job.place, job.name): job for job in jobs}.values())
