"""The built-in set: its geometry against what is known by hand, its plan, and its cache."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import max_pool2d

from torchcaps.data.turntable import CATEGORIES, FULL, load, load_turntable, object_masks
from torchcaps.data.turntable import load as loading
from torchcaps.data.turntable.camera import IMAGE_SIZE, PIXEL, Placement, camera
from torchcaps.data.turntable.load import render_plan
from torchcaps.data.turntable.march import find_surface
from torchcaps.data.turntable.objects import TEST_INSTANCES, TRAIN_INSTANCES, Solid, bounded, proportions, solid
from torchcaps.data.turntable.plan import Plan, plan_split, stereo_views
from torchcaps.data.turntable.render import View, render
from torchcaps.data.turntable.shading import LIGHTINGS
from torchcaps.data.turntable.shapes import (
    Shape,
    blade,
    blend,
    box,
    capsule,
    cylinder,
    ellipsoid,
    mirrored,
    union,
    upright,
)
from torchcaps.data.types import DataError, ImageSet

PAIRS = 30  # one for each instance, and a second for some


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("turntable")


@pytest.fixture(scope="module")
def both(folder: Path) -> ImageSet:
    return load_turntable(folder, pairs=PAIRS, camera="both", progress=False)


def distance(shape: Shape, *point: float) -> float:
    x, y, z = (np.array([value], dtype=np.float32) for value in point)
    return float(shape(x, y, z)[0])


def view(thing: Solid, *, elevation: float = 40, azimuth: float = 0, lighting: int = 0, side: int = -1) -> View:
    scale = 1 / thing.radius
    target = np.array([0.0, 0.0, (thing.centre[2] - thing.floor) * scale])
    placement = Placement(azimuth, scale, (0.0, 0.0), (thing.centre[0], thing.centre[1], thing.floor))
    return View(camera(elevation, side, target), placement, lighting, 0.6)


def outline(thing: Solid, taken: View) -> set[int]:
    return set(find_surface(thing, [taken.placement.to_object(taken.camera)]).pixel.tolist())


# Signed distances


@pytest.mark.parametrize(
    ("shape", "point", "expected"),
    [
        (box((1, 0, 0), (1, 2, 3), 0.1), (4, 0, 0), 2.0),
        (box((0, 0, 0), (1, 1, 1), 0.1), (0.9 + 3, 0.9 + 4, 0.5), 5 - 0.1),
        (cylinder((0, 0, 1), 0.5, 2.0, axis=0), (1, 3, 1), 2.5),
        (cylinder((0, 0, 1), 0.5, 2.0, axis=0), (4, 0, 1), 2.0),
        (cylinder((0, 0, 0), 0.5, 1.0, axis=2), (0, 0, -3), 2.0),
        (capsule((0, 0, 0), (0, 0, 2), 0.5), (3, 0, 1), 2.5),
        (capsule((0, 0, 0), (0, 0, 2), 0.5), (0, 3, 6), 4.5),
        (capsule((0, 0, 0), (2, 2, 0), 0.5), (0, 2, 0), math.sqrt(2) - 0.5),
        (capsule((0, 0, 0), (0, 0, 2), 0.5, 0.1), (3, 0, 2), 2.9),
        (ellipsoid((1, 1, 1), (2, 2, 2)), (1, 1, 6), 3.0),
        (blade((0, 0, 1), 2.0, (1.0, 1.0), 0.0, 0.2), (0, 1, 3), 1.9),
        (upright(blade((0, 0, 1), 2.0, (1.0, 1.0), 0.0, 0.2)), (0, 3, 1), 1.9),
        (mirrored(capsule((0, 2, 0), (0, 3, 0), 0.5)), (0, -5, 0), 1.5),
        (union(capsule((0, 0, 0), (0, 0, 1), 0.5), capsule((9, 0, 0), (9, 0, 1), 0.5)), (7, 0, 0), 1.5),
        (blend(0.2, capsule((0, 0, 0), (0, 0, 1), 0.5), capsule((9, 0, 0), (9, 0, 1), 0.5)), (7, 0, 0), 1.5),
    ],
)
def test_distances_outside_are_those_of_the_solid(
    shape: Shape, point: tuple[float, float, float], expected: float
) -> None:
    assert distance(shape, *point) == pytest.approx(expected, abs=1e-5)


def test_blend_fills_the_joint() -> None:
    parts = capsule((0, 0, 0), (1, 0, 0), 0.3), capsule((0, 0, 0), (0, 0, 1), 0.3)
    assert distance(blend(0.4, *parts), 0.4, 0, 0.4) < distance(union(*parts), 0.4, 0, 0.4) - 0.05


@pytest.mark.parametrize("category", range(len(CATEGORIES)))
def test_distances_of_objects_are_never_much_too_long(category: int) -> None:
    """A march of 0.9 of the distance is safe where distances between points differ by at most what lies between."""
    shape = solid(0, category, TRAIN_INSTANCES[0]).shape
    points = np.random.default_rng(0).uniform(-1.5, 1.5, (2, 3, 20000)).astype(np.float32)
    near, far = points[0], points[0] + 0.1 * points[1]
    apart = np.sqrt(((near - far) ** 2).sum(0))
    steepness = np.abs(shape(*near) - shape(*far)) / apart
    outside = (shape(*near) > 0) & (shape(*far) > 0)
    assert np.quantile(steepness[outside], 0.999) < 1 / 0.9


# Cameras


def test_both_cameras_look_at_their_target() -> None:
    target = np.array([0.0, 0.0, 0.7])
    for side in (-1, 1):
        assert camera(55, side, target).project(target) == pytest.approx((IMAGE_SIZE / 2, IMAGE_SIZE / 2))


def test_a_point_projects_where_it_should() -> None:
    straight = camera(0, 0, np.zeros(3))  # from -y along +y, at a distance of 6
    column, row = straight.project(np.array([0.5, 2.0, 1.0]))  # so 8 away, 0.5 to the right, 1 up
    assert column == pytest.approx(48 + 0.5 / 8 / PIXEL)
    assert row == pytest.approx(48 - 1.0 / 8 / PIXEL)


def test_what_is_near_lies_further_right_for_the_left_camera() -> None:
    left, right = (camera(30, side, np.zeros(3)) for side in (-1, 1))
    near, far = np.array([0.0, -0.8, 0.0]), np.array([0.0, 0.8, 0.0])
    assert left.project(near)[0] > right.project(near)[0] + 1
    assert left.project(far)[0] < right.project(far)[0] - 1


@pytest.mark.parametrize("azimuth", [0, 80, 260])
@pytest.mark.parametrize("side", [-1, 1])
def test_an_object_is_seen_where_its_place_projects(azimuth: float, side: int) -> None:
    ball = bounded(ellipsoid((1.0, 0.5, 0.3), (0.3, 0.3, 0.3)))
    eye = camera(45, side, np.zeros(3))
    placement = Placement(azimuth, 0.5, (0.4, -0.3), (0.0, 0.0, 0.0))
    hits = find_surface(ball, [placement.to_object(eye)])
    seen = hits.pixel % IMAGE_SIZE + 0.5, hits.pixel // IMAGE_SIZE + 0.5
    turn = math.radians(azimuth)
    x, y = 0.5 * math.cos(turn) - 0.25 * math.sin(turn), 0.5 * math.sin(turn) + 0.25 * math.cos(turn)
    middle = np.array([0.4 + x, -0.3 + y, 0.15])
    expected = eye.project(middle)
    assert [float(np.average(values, weights=hits.coverage)) for values in seen] == pytest.approx(expected, abs=0.3)
    radius = math.sqrt(float(hits.coverage.sum()) / math.pi)
    assert radius == pytest.approx(0.15 / PIXEL / float(np.linalg.norm(eye.eye - middle)), abs=0.5)


# Pictures


def test_bounds_enclose_the_object() -> None:
    thing = bounded(box((0.2, 0.0, 0.5), (0.8, 0.4, 0.5), 0.02))
    assert thing.centre == pytest.approx((0.2, 0.0, 0.5), abs=0.03)
    assert thing.radius == pytest.approx(math.sqrt(0.8**2 + 0.4**2 + 0.5**2), abs=0.05)
    assert thing.floor == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("category", range(len(CATEGORIES)))
def test_the_outline_turns_with_the_azimuth(category: int) -> None:
    thing = solid(0, category, TRAIN_INSTANCES[0])
    ahead, across, behind = (outline(thing, view(thing, azimuth=azimuth)) for azimuth in (30, 120, 210))
    assert len(ahead ^ behind) > 0.05 * len(ahead)
    assert len(ahead ^ across) > 0.1 * len(ahead)
    assert ahead == outline(thing, view(thing, azimuth=390))


def test_lighting_changes_the_shading_but_not_the_outline() -> None:
    thing = solid(0, 3, TRAIN_INSTANCES[0])
    views = [view(thing, lighting=lighting) for lighting in range(len(LIGHTINGS))]
    assert len({frozenset(outline(thing, one)) for one in views}) == 1
    pictures = render(thing, views).astype(int)
    inside = np.array(sorted(outline(thing, views[0])))
    for first in range(len(views)):
        for second in range(first):
            change = np.abs(pictures[first] - pictures[second]).reshape(-1)[inside]
            assert change.mean() > 8


def test_the_shadow_falls_away_from_the_lamp() -> None:
    ball = bounded(ellipsoid((0, 0, 1), (0.5, 0.5, 0.5)))  # its lowest point is the ground
    from_left, from_right = render(ball, [view(ball, lighting=lighting) for lighting in (0, 1)]).astype(int)
    assert from_left[48, 2] - from_left[48, 92] > 50
    assert from_right[48, 92] - from_right[48, 2] > 50


def test_a_picture_does_not_depend_on_its_batch() -> None:
    thing = solid(0, 1, TRAIN_INSTANCES[0])
    views = [view(thing, azimuth=20 * number, elevation=30 + 5 * number, side=1) for number in range(5)]
    together = render(thing, views)
    assert together.shape == (5, 96, 96)
    for one, picture in zip(views, together, strict=True):
        np.testing.assert_array_equal(render(thing, [one])[0], picture)


# The plan


def counts(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_counts=True)[1]


def test_the_full_plan_is_every_combination_once() -> None:
    plan = plan_split("train", FULL, seed=0)
    assert FULL == 24300
    assert len(np.unique(np.stack([plan.category, plan.instance, plan.view]), axis=1).T) == FULL


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_part_is_balanced(split: str) -> None:
    plan = plan_split(split, 3000, seed=0)
    assert len(np.unique(np.stack([plan.category, plan.instance, plan.view]), axis=1).T) == 3000
    assert set(counts(plan.category * 10 + plan.instance)) == {120}
    for factor, size in ((plan.elevation, 9), (plan.azimuth, 18), (plan.lighting, 6)):
        assert len(counts(factor)) == size
        assert np.abs(counts(factor) / (3000 / size) - 1).max() < 0.06
        for category in range(5):
            assert np.abs(counts(factor[plan.category == category]) / (600 / size) - 1).max() < 0.2


def test_the_plan_follows_from_the_seed() -> None:
    first, again, other = (plan_split("test", 500, seed).view for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_five_instances_share_out_each_proportion() -> None:
    for group in (TRAIN_INSTANCES, TEST_INSTANCES):
        draws = [proportions(7, 2, instance) for instance in group]
        for _ in range(4):
            assert sorted(int(draw(0, 5)) for draw in draws) == [0, 1, 2, 3, 4]


# The set


def test_the_set_has_the_structure_of_smallnorb(both: ImageSet) -> None:
    assert both.name == "turntable"
    assert both.classes == ("animal", "person", "airplane", "car", "chair")
    for split, instances in ((both.train, TRAIN_INSTANCES), (both.test, TEST_INSTANCES)):
        assert split.images.shape == (PAIRS, 2, 96, 96)
        assert split.images.dtype == torch.uint8
        assert split.labels.bincount().tolist() == [6] * 5
        assert set(split.factor("instance").tolist()) == set(instances)
        assert set(split.factor("elevation").tolist()) <= set(range(9))
        assert set(split.factor("azimuth").tolist()) <= set(range(0, 36, 2))
        assert set(split.factor("lighting").tolist()) <= set(range(6))
        assert split.images.float().std((1, 2, 3)).min() > 5
        assert (split.images[:, 0] != split.images[:, 1]).any()
    assert not set(TRAIN_INSTANCES) & set(TEST_INSTANCES)


def test_a_camera_is_one_channel(both: ImageSet, folder: Path) -> None:
    for channel, name in enumerate(("left", "right")):
        one = load_turntable(folder, pairs=PAIRS, camera=name)
        assert torch.equal(one.train.images, both.train.images[:, channel : channel + 1])


def test_pictures_follow_from_the_seed_and_the_factors_alone() -> None:
    plan = plan_split("train", PAIRS, seed=3)
    some = Plan(*(values[[4, 2]] for values in vars(plan).values()))
    first = render_plan(some, seed=3)
    np.testing.assert_array_equal(first, render_plan(some, seed=3))
    np.testing.assert_array_equal(first[:1], render_plan(Plan(*(values[4:5] for values in vars(plan).values())), 3))
    assert (first != render_plan(some, seed=4)).any()


# The cache


def no_rendering(*_: object) -> None:
    raise AssertionError("rendered, though it is in the cache")


def test_the_second_time_nothing_is_rendered(both: ImageSet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "render_plan", no_rendering)
    again = load_turntable(folder, pairs=PAIRS, camera="both")
    assert torch.equal(again.train.images, both.train.images)
    assert torch.equal(again.test.images, both.test.images)
    assert torch.equal(again.test.labels, both.test.labels)
    again.train.images.zero_()  # a copy of the pages: the file stays as it is
    assert torch.equal(load_turntable(folder, pairs=PAIRS, camera="both").train.images, both.train.images)
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "other"])
def test_a_corrupt_file_is_rendered_anew(harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_turntable(tmp_path, pairs=2)
    path = next(tmp_path.glob("*-train.npy"))
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(
        {
            "cut": whole[:-1000],
            "flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            "empty": b"",
            "other": b"not an array of NumPy",
        }[harm]
    )
    load_turntable(tmp_path, pairs=2)
    assert path.read_bytes() == whole


def test_seeds_and_sizes_have_files_of_their_own(tmp_path: Path) -> None:
    for seed, pairs in ((0, 1), (1, 1), (0, 2)):
        assert len(load_turntable(tmp_path, pairs=pairs, seed=seed).train) == pairs
    assert len(list(tmp_path.glob("*.npy"))) == 6


def test_where_nothing_can_be_kept_the_set_still_comes(tmp_path: Path) -> None:
    file = tmp_path / "a file, not a folder"
    file.touch()
    with pytest.warns(UserWarning, match="not kept"):
        assert len(load_turntable(file / "cache", pairs=1).train) == 1


def test_the_default_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(load, "cache_folder", lambda: tmp_path)
    assert load_turntable(pairs=1).folder == tmp_path / "turntable"


@pytest.mark.parametrize("options", [{"pairs": 0}, {"pairs": 24301}, {"pairs": "all"}, {"camera": "top"}, {"seed": -1}])
def test_what_cannot_be_is_refused(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected"):
        load_turntable(tmp_path, **options)  # type: ignore[arg-type]


def test_masks_are_where_paint_shows(tmp_path):
    """Other paint changes the pixels of the object, and those around it that the lens blurs, and no others."""
    split = load_turntable(tmp_path, pairs=6, camera="both", progress=False).train
    masks = object_masks(split, camera="both")
    assert masks.shape == split.images.shape
    assert masks.dtype == torch.uint8
    plan = plan_split("train", 6, 0)
    for pair in range(6):
        thing = solid(0, int(plan.category[pair]), int(plan.instance[pair]))
        views = stereo_views(thing, plan, np.array([pair]), 0)
        repainted = render(thing, [replace(view, paint=view.paint * 0.5) for view in views])
        changed = torch.from_numpy(repainted) != split.images[pair]
        covered = masks[pair].float() / 255  # [2, 96, 96]
        near = max_pool2d(covered, 3, stride=1, padding=1) > 0  # the lens blurs by one pixel
        assert not (changed & ~near).any()
        assert changed[covered > 0.9].float().mean() > 0.95  # but for dark places
        assert 0.03 < covered.mean() < 0.7
    assert torch.equal(object_masks(split, camera="right"), masks[:, 1:])
    some = torch.tensor([4, 1])
    assert torch.equal(object_masks(split.take(some)), masks[some, :1])  # they follow from the factors
