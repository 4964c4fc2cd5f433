"""Rows of metrics, and what is read from them."""

from pathlib import Path

import pytest

from torchcaps.runs.metrics import COLUMNS, Row, append, read_rows, start_file
from torchcaps.runs.run import Run

# Two epochs of 15 steps as older versions wrote them: the rows of steps 15 and 30 stand for 5 steps each.
HEAD = (
    "step,epoch,seconds,images_per_second,rate,margin,loss,output_loss,reconstruction_loss,training_error,"
    "validation_error\n"
)
OLD = f"""{HEAD}10,0.666666667,1,80,0.001,,0.9,0.9,,0.6,
15,1,2,40,0.001,,0.6,0.6,,0.3,0.5
20,1.33333333,3,80,0.001,,0.5,0.5,,0.2,
30,2,4,80,0.001,,0.2,0.2,,0.1,0.4
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.csv"
    path.write_text(OLD)
    return path


def test_epochs_of_older_files_become_means(old: Path) -> None:
    rows = read_rows(old)
    assert [row["step"] for row in rows] == [10, 15, 20, 30]
    assert [row["loss"] for row in rows] == pytest.approx([0.9, (10 * 0.9 + 5 * 0.6) / 15, 0.5, 0.3])
    assert [row["training_error"] for row in rows] == pytest.approx([0.6, 0.5, 0.2, (5 * 0.2 + 10 * 0.1) / 15])
    # 10 steps at 80 images per second and 5 at 40 take as long as each other: 15 steps in the time of 20 at 80
    assert [row["images_per_second"] for row in rows] == pytest.approx([80, 60, 80, 80])
    assert [row["validation_error"] for row in rows] == [None, 0.5, None, 0.4]
    assert all(row["validation_loss"] is row["reconstruction_loss"] is None for row in rows)


@pytest.mark.parametrize(("step", "kept"), [(30, 4), (24, 3), (12, 1)])
def test_a_resumed_older_run_goes_on_with_the_new_columns(old: Path, step: int, kept: int) -> None:
    rows = read_rows(old)[:kept]
    start_file(old, step)
    assert old.read_text().splitlines()[0] == ",".join(COLUMNS)
    added: Row = dict.fromkeys(COLUMNS, 0.25) | {"step": 45.0, "epoch": 3.0}
    append(old, added)
    *before, last = read_rows(old)
    assert last == added
    for found, row in zip(before, rows, strict=True):  # not averaged a second time
        for name in COLUMNS:
            assert found[name] == (None if row[name] is None else pytest.approx(row[name], rel=1e-8)), name


def test_a_file_without_a_column_that_it_always_had_has_no_rows(old: Path) -> None:
    old.write_text(OLD.replace("training_error,", "", 1))
    assert read_rows(old) == []


def test_damaged_numbers_in_older_files(old: Path) -> None:
    old.write_text(OLD + "31,nan,5,nan,1,,inf,1,,1,\n32,inf,5,0,1,,1,1,,1,\n45,3,5,0,1,,nan,1,,1,\n")
    assert [row["step"] for row in read_rows(old)] == [10, 15, 20, 30, 31, 32, 45]


def run_of(*rows: tuple[float, float, float | None]) -> Run:
    """Of steps, epochs and losses."""
    values = [{"step": step, "epoch": epoch} | ({} if loss is None else {"loss": loss}) for step, epoch, loss in rows]
    return Run(card={}, result={}, rows=values)


def test_the_mean_of_an_epoch_is_that_of_its_last_row() -> None:
    run = run_of((10, 2 / 3, 0.9), (15, 1, 0.8), (20, 4 / 3, 0.5), (30, 2, 0.3))
    assert run.by_epoch("loss") == [(1, 0.8), (2, 0.3)]
    assert [row["step"] for row in run.by_steps()] == [10, 20]
    assert run.course("loss") == [(2 / 3, 0.9), (1, 0.8), (4 / 3, 0.5), (2, 0.3)]


def test_an_epoch_that_broke_off_is_the_mean_of_its_steps() -> None:
    run = run_of((8, 0.4, 0.7), (20, 1, 0.6), (30, 1.5, 0.5), (35, 1.75, 0.2))
    assert run.by_epoch("loss") == [(1, 0.6), (1.75, pytest.approx((10 * 0.5 + 5 * 0.2) / 15))]


def test_epochs_of_few_steps() -> None:
    run = run_of((4, 1, 0.9), (8, 2, 0.7), (10, 2.5, 0.6), (12, 3, 0.5))
    assert run.by_epoch("loss") == [(1, 0.9), (2, 0.7), (3, 0.5)]
    assert [row["step"] for row in run.by_steps()] == [4, 8, 10]
    assert run_of((4, 1, None)).by_epoch("loss") == []
    assert run_of().by_epoch("loss") == run_of().by_steps() == []
