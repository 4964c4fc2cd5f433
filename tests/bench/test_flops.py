"""The formula against numbers that count what is done to them."""

import math
import random
from typing import Any

import pytest

from torchcaps.bench.flops import field_flops, layer_bytes, layer_flops
from torchcaps.bench.workloads import LayerShape, hybrid_layers

D = 16


class Counted:
    """A number whose operations are counted."""

    done = 0

    def __init__(self, value: float) -> None:
        self.value = value

    @staticmethod
    def counted(value: float) -> "Counted":
        Counted.done += 1
        return Counted(value)

    def __add__(self, other: Any) -> "Counted":
        return self.counted(self.value + plain(other))

    def __sub__(self, other: Any) -> "Counted":
        return self.counted(self.value - plain(other))

    def __rsub__(self, other: Any) -> "Counted":
        return self.counted(plain(other) - self.value)

    def __mul__(self, other: Any) -> "Counted":
        return self.counted(self.value * plain(other))

    def __truediv__(self, other: Any) -> "Counted":
        return self.counted(self.value / plain(other))

    def __rtruediv__(self, other: Any) -> "Counted":
        return self.counted(plain(other) / self.value)

    def __abs__(self) -> "Counted":
        return self.counted(abs(self.value))

    def __lt__(self, other: Any) -> bool:  # a comparison does not count
        return self.value < plain(other)


def plain(value: Any) -> float:
    return value.value if isinstance(value, Counted) else float(value)


def exp(x: Counted) -> Counted:
    return Counted.counted(math.exp(x.value))


def log(x: Counted) -> Counted:
    return Counted.counted(math.log(x.value))


def add(terms: Any) -> Counted:
    """n terms, n additions."""
    result = Counted(0.0)
    for term in terms:
        result = result + term
    return result


def softmax(row: list[Counted]) -> list[Counted]:
    top = max(row, key=plain)
    powers = [exp(x - top) for x in row]
    whole = add(powers)
    return [power / whole for power in powers]


def numbers(*shape: int) -> Any:
    if not shape:
        return Counted(random.uniform(0.1, 1.0))
    return [numbers(*shape[1:]) for _ in range(shape[0])]


def make_votes(inputs: int, outputs: int) -> Any:
    pose, weight = numbers(inputs, 4, 4), numbers(inputs, outputs, 4, 4)
    return [
        [
            [add(pose[i][a][b] * weight[i][j][b][c] for b in range(4)) for a in range(4) for c in range(4)]
            for j in range(outputs)
        ]
        for i in range(inputs)
    ]


def route_by_density(method: str, inputs: int, outputs: int, iterations: int) -> None:
    """FREM and FRMS as Algorithms 1 and 2 with the paper's defaults, and eq. 8."""
    u, a, beta, beta0 = make_votes(inputs, outputs), numbers(inputs), numbers(outputs, D), numbers(outputs)
    i_range, j_range, d_range = range(inputs), range(outputs), range(D)
    r: Any = [[Counted(1 / outputs) for _ in j_range] for _ in i_range]
    coupling = r
    for t in range(iterations):
        if t > 0:
            coupling = [softmax(row) for row in r]
        w = [[coupling[i][j] * a[i] for j in j_range] for i in i_range]
        whole = [add(w[i][j] for i in i_range) for j in j_range]
        v = [[add(w[i][j] * u[i][j][d] for i in i_range) / whole[j] for d in d_range] for j in j_range]
        if t + 1 < iterations:
            k = [[1 - add(abs(u[i][j][d] - v[j][d]) for d in d_range) for j in j_range] for i in i_range]
            if method == "frem":
                pi = [add(coupling[i][j] for i in i_range) / inputs for j in j_range]
                r = [[pi[j] * k[i][j] for j in j_range] for i in i_range]
            else:
                r = [[r[i][j] + a[i] * k[i][j] for j in j_range] for i in i_range]
    scaled = [[beta[j][d] * v[j][d] for d in d_range] for j in j_range]
    x = [[add(abs(u[i][j][d] - scaled[j][d]) for d in d_range) + beta0[j] for j in j_range] for i in i_range]
    softmax([add(w[i][j] * (1 - x[i][j]) for i in i_range) for j in j_range])


def route_by_em(inputs: int, outputs: int, iterations: int) -> None:
    """Hinton et al. 2018; the sum of the weights is the mass of the cost."""
    u, a, beta_u, beta_a = make_votes(inputs, outputs), numbers(inputs), numbers(outputs), numbers(outputs)
    i_range, j_range, d_range = range(inputs), range(outputs), range(D)
    r: Any = [[Counted(1 / outputs) for _ in j_range] for _ in i_range]
    for t in range(iterations):
        w = [[r[i][j] * a[i] for j in j_range] for i in i_range]
        mass = [add(w[i][j] for i in i_range) for j in j_range]
        v = [[add(w[i][j] * u[i][j][d] for i in i_range) / mass[j] for d in d_range] for j in j_range]

        def square(z: Counted) -> Counted:
            return z * z

        variance = [
            [add(w[i][j] * square(u[i][j][d] - v[j][d]) for i in i_range) / mass[j] for d in d_range] for j in j_range
        ]
        cost = [add(beta_u[j] + log(variance[j][d]) / 2 for d in d_range) * mass[j] for j in j_range]
        logit = [(beta_a[j] - cost[j]) * 0.01 for j in j_range]
        if t + 1 < iterations:
            precision = [[1 / variance[j][d] for d in d_range] for j in j_range]
            normaliser = [add(log(variance[j][d] * (2 * math.pi)) for d in d_range) / 2 for j in j_range]
            minus_log_prior = [log(exp(Counted(-logit[j].value)) + 1) for j in j_range]
            bias = [minus_log_prior[j] + normaliser[j] for j in j_range]
            r = []
            for i in i_range:
                spread = [add(square(u[i][j][d] - v[j][d]) * precision[j][d] for d in d_range) for j in j_range]
                r.append(softmax([spread[j] * -0.5 - bias[j] for j in j_range]))
    for j in j_range:
        _ = 1 / (exp(Counted(-logit[j].value)) + 1)


@pytest.mark.parametrize("method", ["frem", "frms", "em"])
@pytest.mark.parametrize(("inputs", "outputs", "iterations"), [(3, 2, 1), (3, 2, 2), (2, 3, 4), (2, 1, 2)])
def test_formula_counts_what_the_algorithm_does(method: str, inputs: int, outputs: int, iterations: int) -> None:
    random.seed(0)
    Counted.done = 0
    if method == "em":
        route_by_em(inputs, outputs, iterations)
    else:
        route_by_density(method, inputs, outputs, iterations)
    assert field_flops(method, inputs, outputs, iterations).total == Counted.done


def test_layers_of_the_network() -> None:
    layers = hybrid_layers()
    assert [(layer.inputs, layer.outputs, layer.fields) for layer in layers] == [
        (16, 8, 1024),
        (32, 8, 256),
        (32, 16, 64),
        (64, 32, 16),
        (512, 5, 1),
    ]
    per_image = sum(layer.fields * field_flops("frem", layer.inputs, layer.outputs).total for layer in layers)
    assert sum(layer_flops("frem", layer, batch=50) for layer in layers) == 50 * per_image
    assert 50 * per_image / 1e9 == pytest.approx(4.4, rel=0.1)  # an estimate made before the formula


def test_bytes_of_a_layer() -> None:
    layer = LayerShape("x", 2, 4, 4, 4, 8, 3, (48, 2, 2), (3, 2, 2))
    maps = (16 + 1) * (2 * 4 * 4 + 3 * 2 * 2)
    assert layer_bytes(layer, batch=5) == 4 * (5 * maps + 8 * 3 * 16)
