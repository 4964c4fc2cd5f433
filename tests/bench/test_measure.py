"""Turns, ratios, spreads and exponents, on made-up numbers."""

import math

import pytest

from torchcaps.bench.measure import Contender, Spread, fitted_exponent, race, ratio, spread, total


def record(rounds: int, *, every: int = 1, warm_up: bool = True) -> tuple[list[str], dict[str, list[float | None]]]:
    """The order in which three contenders ran; b is the one with settings."""
    ran: list[str] = []
    contenders = [
        Contender("a", lambda: ran.append("a")),
        Contender("b", lambda: ran.append("b"), every, warm_up),
        Contender("c", lambda: ran.append("c")),
    ]
    return ran, race(contenders, rounds)


def test_each_round_runs_each_contender_once_and_starts_with_another() -> None:
    ran, times = record(3)
    assert "".join(ran) == "abc" + "abc" + "bca" + "cab"  # the first three are the warm-up
    assert all(len(seconds) == 3 and None not in seconds for seconds in times.values())


def test_a_slow_contender_takes_part_in_every_nth_round_only() -> None:
    ran, times = record(5, every=2, warm_up=False)
    assert "".join(ran) == "ac" + "abc" + "ca" + "cab" + "ca" + "bca"
    assert [seconds is None for seconds in times["b"]] == [False, True, False, True, False]
    assert None not in times["a"]


def test_notes_say_what_is_done() -> None:
    notes: list[str] = []
    race([Contender("a", lambda: None)], 2, notes.append)
    assert notes == ["warming up a", "round 1 of 2: a", "round 2 of 2: a"]


def test_ratios_are_taken_within_a_round() -> None:
    # the machine was ten times slower in the second round, and the third is not shared
    found = ratio([2.0, 20.0, None, 3.0], [1.0, 10.0, 5.0, 1.0])
    assert found == Spread(median=2.0, lower=2.0, upper=2.5, least=2.0, count=3)


def test_ratio_wants_the_same_rounds() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratio([1.0, 2.0], [1.0])


def test_spread_of_one_and_of_none() -> None:
    assert spread([None, 4.0]) == Spread(4.0, 4.0, 4.0, 4.0, 1)
    nothing = spread([None])
    assert nothing.count == 0
    assert math.isnan(nothing.median)


def test_total_is_the_sum_of_a_round_or_nothing() -> None:
    assert total([[1.0, 2.0, None], [10.0, None, None]]) == [11.0, None, None]


@pytest.mark.parametrize("exponent", [0.0, 0.5, 2.0, -1.0])
def test_exponent_of_a_power_law(exponent: float) -> None:
    sizes = [1, 2, 8, 64]
    found, factor = fitted_exponent(sizes, [0.3 * size**exponent for size in sizes])
    assert found == pytest.approx(exponent, abs=1e-9)
    assert factor == pytest.approx(0.3)


def test_exponent_is_the_least_squares_one() -> None:
    # logarithms (base 2) 0, 1, 2 and 0, 2, 1: slope 1/2, mean 1
    found, factor = fitted_exponent([1, 2, 4], [1, 4, 2])
    assert found == pytest.approx(0.5)
    assert factor == pytest.approx(2**0.5)
