"""The contents of a run's directory before a run starts."""

import json
from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.run.journal import Journal
from rl_sentinel.train.run.run_directory import RunDirectory
from training import recipe


def _files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_foreign_files_are_left_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("1\n2\n")
    before = _files(tmp_path)
    with pytest.raises(SentinelError, match=rf"{name} line 1 is '1', expected step 1 of a run: name another folder"):
        Journal.open(recipe(tmp_path))
    assert _files(tmp_path) == before
    path.write_text('{"step": 1}\n')
    before = _files(tmp_path)
    with pytest.raises(SentinelError, match=r"has files of a run but no recipe.json: name another"):
        Journal.open(recipe(tmp_path))
    assert _files(tmp_path) == before


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_foreign_partial_line_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"loss": 0.5}')
    with pytest.raises(SentinelError, match=r"has files of a run but no recipe.json: name another"):
        Journal.open(recipe(tmp_path))
    assert (tmp_path / name).read_text() == '{"loss": 0.5}'


@pytest.mark.parametrize("text", [b"", b"[]", b'{"seed": 1', b"\xff\x00", b"5", b'{"name": "mine"}', b"[" * 9999])
def test_invalid_recipe_is_one_line(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "recipe.json").write_bytes(text)
    with pytest.raises(SentinelError, match=r"recipe.json cannot be read \(.*\), expected a run's recipe") as error:
        Journal.open(recipe(tmp_path))
    assert "\n" not in str(error.value)
    assert (tmp_path / "recipe.json").read_bytes() == text


@pytest.mark.parametrize("name", ["recipe.json", "metrics.jsonl", "timing.jsonl"])
def test_folder_in_place_of_a_file_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(SentinelError, match=rf"{name} is not a file, expected a run's file: name another"):
        Journal.open(recipe(tmp_path))


def test_file_in_place_of_the_checkpoints_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(SentinelError, match=r"checkpoints is a file, expected a folder of checkpoints: name another"):
        Journal.open(recipe(tmp_path))


def test_partial_line_is_no_step(tmp_path: Path) -> None:
    journal = Journal.open(recipe(tmp_path))
    journal.append(journal.metrics, {"step": 1})
    with journal.metrics.open("a") as file:
        file.write('{"step": 2, "rew')
    journal.close()
    contents = RunDirectory.inspect(tmp_path)
    assert contents.recipe is not None
    assert (contents.steps, contents.has_checkpoint, contents.started) == (1, False, True)
    assert json.loads((tmp_path / "recipe.json").read_text())["seed"] == contents.recipe.seed
