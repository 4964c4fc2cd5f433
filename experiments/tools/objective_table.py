"""What routing does to the function that it is said to climb: its course over the iterations, as it is."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.functional import em_log_likelihood, list_routings, objective, routing_method, trace_routing

FIELDS, INPUTS, OUTPUTS, SIZE = 500, 16, 8, 16
ITERATIONS = 5
# The mean l1 distance of the votes below from their cluster is about 4; so a clipped kernel has votes on both sides.
DENSITY_OPTIONS = {"distance": "l1", "bandwidth": 4.0}


class Course(NamedTuple):
    """The objective of one method, averaged over the fields."""

    method: str
    options: dict[str, Any]
    values: list[float]  # after each iteration
    falls: float  # share of the fields in which it fell in some iteration


def sample_votes() -> tuple[Tensor, Tensor]:
    """Fields in which half of the inputs agree about each output, and the others do not."""
    g = torch.Generator().manual_seed(0)
    center = torch.randn(FIELDS, 1, OUTPUTS, SIZE, generator=g, dtype=torch.float64)
    spread = torch.where(torch.rand(FIELDS, INPUTS, OUTPUTS, 1, generator=g) < 0.5, 0.1, 0.5)
    votes = center + spread * torch.randn(FIELDS, INPUTS, OUTPUTS, SIZE, generator=g, dtype=torch.float64)
    return votes, torch.rand(FIELDS, INPUTS, generator=g, dtype=torch.float64)


def courses() -> Iterator[Course]:
    """The course of eq. 3 for FRMS and FREM with each kernel and normalisation, and of EM's log-likelihood."""
    votes, activation = sample_votes()

    def course(method: str, options: dict[str, Any]) -> Course:
        starts = routing_method(method).parameters(OUTPUTS, SIZE)
        parameters = {name: torch.full(p.shape, p.value, dtype=votes.dtype) for name, p in starts.items()}
        trace = trace_routing(method, votes, activation, parameters, iterations=ITERATIONS, **options)
        if method == "em":
            values = torch.stack([em_log_likelihood(votes, activation, routed) for routed in trace])
        else:
            values = torch.stack([objective(votes, activation, r.pose, r.coupling, **options) for r in trace])
        fell = (values.diff(dim=0) < -1e-12 * values[:-1].abs()).any(0)  # [fields]; 1e-12: rounding
        return Course(method, options, values.mean(1).tolist(), fell.double().mean().item())

    for method in (name for name in list_routings() if "kernel" in routing_method(name).options):
        for kernel in ("epanechnikov", "gaussian"):
            for normalize in ("softmax", "sum"):
                yield course(method, {"kernel": kernel, "normalize": normalize, **DENSITY_OPTIONS})
    yield course("em", {})


def markdown() -> str:
    """The courses as a table for the docs."""
    heads = [f"after {t}" for t in range(1, ITERATIONS + 1)]
    lines = [f"| method | kernel | normalisation | {' | '.join(heads)} | falls in |", "|---|---|---|" + "---|" * 6]
    for c in courses():
        kernel, normalize = c.options.get("kernel", "-"), c.options.get("normalize", "-")
        values = " | ".join(f"{value:.4f}" for value in c.values)
        lines.append(f"| {c.method} | {kernel} | {normalize} | {values} | {c.falls:.1%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
