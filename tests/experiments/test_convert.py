"""Files of older versions."""

import json
from pathlib import Path

import pytest

from experiments.tools.convert import convert, convert_file
from torchcaps.models.files import FORMAT
from torchcaps.train.recipe import recipe_from_json
from torchcaps.train.recipes import recipe

REPOSITORY = Path(__file__).parents[2]
FILES = sorted((REPOSITORY / "experiments/results").rglob("*.json"))
OLD = {"name": "mine", "data": "mnist", "images": 60, "size": 32, "fields": [2, 3], "rate": 0.5, "root": None}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_result_is_up_to_date(path: Path) -> None:
    values = json.loads(path.read_text())
    assert convert(values) == values
    if "recipe" in values:
        recipe_from_json(values["recipe"])


def test_fields_find_their_parts_and_missing_ones_their_defaults() -> None:
    found = recipe_from_json(convert({"recipe": OLD, "seed": 1})["recipe"])
    changes = {"name": "mine", "data": "mnist", "images": 60, "size": 32, "fields": (2, 3), "rate": 0.5}
    assert found == type(found).of(**changes)


def test_model_files() -> None:
    old = {"format": 1, "options": {"classes": 3, "routing": "em"}, "classes": ["a", "b", "c"], "card": {"recipe": OLD}}
    new = convert(old)
    assert new["format"] == FORMAT
    assert new["options"] == {"num_classes": 3, "routing": "em"}
    assert new["classes"] == old["classes"]  # the names
    assert recipe_from_json(new["card"]["recipe"]).data.images == 60
    assert convert(new) == new


def test_in_place_and_only_where_due(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"recipe": OLD}))
    assert convert_file(path)
    before = path.read_bytes()
    assert not convert_file(path)
    assert path.read_bytes() == before


def test_what_is_written_now_needs_no_conversion() -> None:
    values = {"recipe": json.loads(json.dumps(recipe("smallnorb-frem").as_json()))}
    assert convert(values) == values
