"""Parts 2, 6 and 7: the paper's network against the baseline CNN, what norms add, and the networks of our recipes."""

from typing import Any

from torchcaps.bench.devices import clock_of
from torchcaps.bench.measure import Contender, Note, key, race, spread, under
from torchcaps.bench.memory_probe import peak_memory
from torchcaps.bench.plan import CNN, HYBRID, METHODS, POOLCAPS, Plan
from torchcaps.bench.workloads import NetworkCase, NetworkMode, loader_step
from torchcaps.train.recipes import recipe

MODES: tuple[NetworkMode, ...] = ("inference", "training")
LAYOUTS = {"channels-last": True, "contiguous": False}
TRIAL_ROUNDS = 5  # a hiccup of the machine in all of them would choose the slower one
LOADER, PLAIN = "loader", "native with PyTorch's convolutions"

# Seconds of the paper's Table 1: a batch of 50 on a Tesla P40.
PAPER = {
    "frms": {"inference": 0.158, "training": 0.470},
    "frem": {"inference": 0.158, "training": 0.471},
    "em": {"inference": 0.252, "training": 0.744},
    "cnn": {"inference": 0.043, "training": 0.064},
}


def network_case(plan: Plan, model: str, mode: NetworkMode, **options: Any) -> NetworkCase:
    """A network as the plan runs it, in the plan's first backend unless another is named."""
    where: dict[str, Any] = {"batch": plan.batch, "device": plan.device, "backend": plan.first}
    return NetworkCase(model=model, mode=mode, **(where | options))


def fastest_layouts(plan: Plan, note: Note) -> dict[str, str]:
    """The memory layout in which each network is fastest on this machine, by model/mode: each runs at its best."""
    layouts = {}
    for mode in MODES:
        for model in (CNN, HYBRID):
            contenders = [
                Contender(name, network_case(plan, model, mode, channels_last=last).build())
                for name, last in LAYOUTS.items()
            ]
            times = race(contenders, TRIAL_ROUNDS, under(f"layout of {model}", note), clock_of(plan.device))
            layouts[key(model, mode)] = min(times, key=lambda name: spread(times[name]).least)
    return layouts


def measure_networks(plan: Plan, note: Note) -> dict[str, Any]:
    """Times and peak memory by cnn/mode and backend/method/mode."""
    cases, result = time_networks(plan, note)
    note(f"peak memory of {len(cases)} cases")
    return result | {"peak_bytes": dict(zip(cases, peak_memory(list(cases.values())), strict=True))}


def time_networks(plan: Plan, note: Note) -> tuple[dict[str, NetworkCase], dict[str, Any]]:
    """What was timed, and its times."""
    layouts = fastest_layouts(plan, note)

    def case(model: str, mode: NetworkMode, **options: Any) -> NetworkCase:
        return network_case(plan, model, mode, channels_last=LAYOUTS[layouts[key(model, mode)]], **options)

    cases = {key("cnn", mode): case(CNN, mode) for mode in MODES} | {
        key(backend, method, mode): case(HYBRID, mode, backend=backend, options={"routing": method})
        for backend in plan.backends
        for method in METHODS
        for mode in MODES
    }
    if plan.first == "native":  # the others have PyTorch's convolutions anyway
        for mode in MODES:
            cases[key(PLAIN, "frem", mode)] = case(HYBRID, mode, options={"routing": "frem"}, plain_convolutions=True)
    contenders = [
        Contender(name, case.build(), plan.every[case.backend], warm_up=plan.warms_up(case.backend))
        for name, case in cases.items()
    ]
    contenders.append(Contender(LOADER, loader_step(plan.batch)))
    return cases, {
        "batch": plan.batch,
        "layouts": layouts,
        "backends": plan.backends,
        "seconds": race(contenders, plan.rounds, note, clock_of(plan.device)),
        "paper_seconds": PAPER,
    }


NETWORKS = (HYBRID, POOLCAPS, CNN)
NORMS = {"plain": None, "batch": "batch"}


def measure_norm(plan: Plan, note: Note) -> dict[str, Any]:
    """Seconds by network, norm and mode; the capsules are FREM's, in the plan's first backend."""
    contenders = [
        Contender(key(model, name, mode), network_case(plan, model, mode, options={"norm": norm}).build())
        for model in NETWORKS
        for mode in MODES
        for name, norm in NORMS.items()
    ]
    seconds = race(contenders, plan.rounds, note, clock_of(plan.device))
    return {"batch": plan.batch, "backend": plan.first, "seconds": seconds}


BASELINE = "cnn32"
RECIPES = {"headcaps32": "frem", "poolcaps32": "frem", "hybrid32": "frem", BASELINE: "cnn"}


def measure_recipes(plan: Plan, note: Note) -> dict[str, Any]:
    """Seconds by network and mode, as the recipes for pairs of images have them, in the plan's first backend."""
    contenders, side = [], 0
    for model, method in RECIPES.items():
        follows = recipe(f"smallnorb-{method}", model=model)
        side = follows.images.size
        options = {"num_classes": 5, "in_channels": 2, "image_size": side, **follows.network.options()}
        contenders += [
            Contender(key(model, mode), network_case(plan, model, mode, options=options).build()) for mode in MODES
        ]
    seconds = race(contenders, plan.rounds, note, clock_of(plan.device))
    return {"batch": plan.batch, "backend": plan.first, "side": side, "seconds": seconds}
