"""What lies in a folder before a run begins there."""

import json
from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.run.journal import Journal
from rl_sentinel.train.run.run_directory import Past
from training import recipe


def _named(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_files_of_others_are_left_alone(tmp_path: Path, name: str) -> None:
    """Lines that are no steps, with a recipe or without; nothing in the folder is touched."""
    place = tmp_path / name
    place.write_text("1\n2\n")
    before = _named(tmp_path)
    with pytest.raises(SentinelError, match=rf"{name} line 1 is '1', expected step 1 of a run: name another folder"):
        Journal.opened(recipe(tmp_path))
    assert _named(tmp_path) == before
    place.write_text('{"step": 1}\n')
    before = _named(tmp_path)
    with pytest.raises(SentinelError, match=r"holds files of a run and no recipe.json, expected both: name another"):
        Journal.opened(recipe(tmp_path))
    assert _named(tmp_path) == before


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_half_a_line_of_others_is_left_alone(tmp_path: Path, name: str) -> None:
    """What a killed run did not end is cut off where there is its recipe; without one it is not ours."""
    (tmp_path / name).write_text('{"loss": 0.5}')
    with pytest.raises(SentinelError, match=r"holds files of a run and no recipe.json, expected both: name another"):
        Journal.opened(recipe(tmp_path))
    assert (tmp_path / name).read_text() == '{"loss": 0.5}'


@pytest.mark.parametrize("text", [b"", b"[]", b'{"seed": 1', b"\xff\x00", b"5", b'{"name": "mine"}', b"[" * 9999])
def test_recipe_that_is_none_is_one_line(tmp_path: Path, text: bytes) -> None:
    """Half, empty, binary, or somebody else's."""
    (tmp_path / "recipe.json").write_bytes(text)
    with pytest.raises(SentinelError, match=r"recipe.json cannot be read \(.*\), expected the recipe of a run") as told:
        Journal.opened(recipe(tmp_path))
    assert "\n" not in str(told.value)
    assert (tmp_path / "recipe.json").read_bytes() == text


@pytest.mark.parametrize("name", ["recipe.json", "metrics.jsonl", "timing.jsonl"])
def test_folder_in_the_place_of_a_file_is_one_line(tmp_path: Path, name: str) -> None:
    """Of each name."""
    (tmp_path / name).mkdir()
    with pytest.raises(SentinelError, match=rf"{name} is no file, expected what a run wrote: name another"):
        Journal.opened(recipe(tmp_path))


def test_file_in_the_place_of_the_checkpoints_is_one_line(tmp_path: Path) -> None:
    """As above."""
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(SentinelError, match=r"checkpoints is a file, expected a folder of a run: name another"):
        Journal.opened(recipe(tmp_path))


def test_line_that_was_not_ended_is_no_step(tmp_path: Path) -> None:
    """A killed run's last; and what is there is counted."""
    journal = Journal.opened(recipe(tmp_path))
    journal.wrote({"step": 1}, {"step": 1})
    with journal.metrics.open("a") as file:
        file.write('{"step": 2, "rew')
    journal.close()
    found = Past.found(tmp_path)
    assert found.recipe is not None
    assert (found.steps, found.saved, found.begun) == (1, False, True)
    assert json.loads((tmp_path / "recipe.json").read_text())["seed"] == found.recipe.seed
