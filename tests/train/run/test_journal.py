"""A run's folder."""

import json
import re
from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.run.journal import Journal, lines
from training import recipe


def test_lines_are_cut_back_to_a_mark(tmp_path: Path) -> None:
    """What came after the checkpoint is done again, not told twice."""
    journal = Journal.opened(recipe(tmp_path / "run"))
    for step in (1, 2):
        journal.wrote({"step": step}, {"step": step, "seconds": 0.5})
    mark, before = journal.mark(), journal.metrics.read_bytes()
    journal.wrote({"step": 3}, {"step": 3, "seconds": 0.5})
    with journal.metrics.open("a") as file:
        file.write('{"step": 4, "rew')
    journal.back(mark)
    assert journal.metrics.read_bytes() == before == b'{"step": 1}\n{"step": 2}\n'
    assert [line["step"] for line in lines(journal.timing)] == [1, 2]
    journal.back(None)
    assert journal.metrics.read_bytes() == b""
    journal.close()


def test_other_metrics_than_the_checkpoint_knows_are_refused(tmp_path: Path) -> None:
    """Whoever edited them."""
    journal = Journal.opened(recipe(tmp_path / "run"))
    journal.wrote({"step": 1}, {})
    mark = journal.mark()
    journal.metrics.write_text('{"step": 9}\n')
    with pytest.raises(SentinelError, match=r"metrics.jsonl is not what the checkpoint knows, expected 1 lines as"):
        journal.back(mark)
    journal.close()


def test_folder_is_held_by_one_run_of_one_recipe(tmp_path: Path) -> None:
    """Another waits, or goes elsewhere; what does not change a number may differ."""
    first = Journal.opened(recipe(tmp_path))
    with pytest.raises(SentinelError, match=r"is in use by another run: wait for it, or name another with out=DIR"):
        Journal.opened(recipe(tmp_path))
    first.close()
    first.wrote({"step": 1}, {"step": 1})
    more = {"checkpoint": {"every": 3}, "rollout": {"url": "http://127.0.0.1:9"}, "steps": 9}
    Journal.opened(recipe(tmp_path, **more)).close()
    assert json.loads((tmp_path / "recipe.json").read_text())["steps"] == 9
    differ = r"holds a run of another recipe \(seed, update.rate differ\)"
    with pytest.raises(SentinelError, match=differ):
        Journal.opened(recipe(tmp_path, seed=4, steps=9, update={"rate": 7.0}))
    Journal.opened(recipe(tmp_path)).close()
    falling = {"update": {"schedule": "linear"}}
    other = tmp_path / "falling"
    first = Journal.opened(recipe(other, **falling))
    first.wrote({"step": 1}, {"step": 1})
    first.close()
    with pytest.raises(SentinelError, match=r"another recipe \(steps differs\)"):
        Journal.opened(recipe(other, steps=9, **falling))


def test_fewer_steps_than_are_done_are_refused(tmp_path: Path) -> None:
    """With how many are."""
    journal = Journal.opened(recipe(tmp_path, steps=5))
    for step in (1, 2, 3):
        journal.wrote({"step": step}, {"step": step})
    journal.close()
    with pytest.raises(SentinelError, match=r"steps is 2, expected 3 or more, which are done in .*: name another"):
        Journal.opened(recipe(tmp_path, steps=2))
    assert json.loads((tmp_path / "recipe.json").read_text())["steps"] == 5


def test_folder_of_a_run_that_did_nothing_is_taken_over(tmp_path: Path) -> None:
    """By any recipe, which is the one that is written down."""
    Journal.opened(recipe(tmp_path, seed=1)).close()
    Journal.opened(recipe(tmp_path, seed=2)).close()
    assert json.loads((tmp_path / "recipe.json").read_text())["seed"] == 2


@pytest.mark.parametrize("out", ["", " ", "a\0b", "~nouser41/x"])
def test_folder_that_is_no_path_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str) -> None:
    """Least of all the current one."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SentinelError, match=rf"^out is {re.escape(repr(out))}, expected a path: "):
        Journal.opened(recipe(out))
    assert not list(tmp_path.iterdir())


def test_full_disk_leaves_nothing_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the recipe; and the folder is free again."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.replace", full)
        with pytest.raises(SentinelError, match=r"recipe.json cannot be written \(No space left on device\)"):
            Journal.opened(recipe(tmp_path))
    assert [p.name for p in tmp_path.iterdir() if p.name != ".lock"] == []
    Journal.opened(recipe(tmp_path)).close()


def test_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """A file is in the way."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SentinelError, match=r"out\[.*file/run\] cannot be used \(Not a directory\)"):
        Journal.opened(recipe(tmp_path / "file" / "run"))


def test_full_disk_is_one_line(tmp_path: Path) -> None:
    """Real: a file that may not grow."""
    journal = Journal.opened(recipe(tmp_path / "run"))
    journal.metrics.symlink_to("/dev/full")
    with pytest.raises(SentinelError, match=r"metrics.jsonl cannot be written \(No space left on device\): make room"):
        journal.wrote({"step": 1}, {})
    journal.close()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2 cannot be read"),
        ("5", "line 2 is '5', expected an object with its step: name the folder of a run"),
        ("[1]", r"line 2 is '\[1\]', expected an object with its step"),
        ("{}", "line 2 is '{}', expected an object with its step"),
        ('{"step": 2, "reward": null}', r"line 2\[reward\] is None, expected a number"),
        ('{"step": 2, "reward": "x"}', r"line 2\[reward\] is 'x', expected a number"),
    ],
)
def test_lines_that_are_none_are_refused(tmp_path: Path, line: str, words: str) -> None:
    """With the file and the line."""
    place = tmp_path / "metrics.jsonl"
    place.write_text(json.dumps({"step": 1}) + "\n" + line)
    with pytest.raises(SentinelError, match=f"metrics.jsonl {words}"):
        lines(place)


def test_empty_file_has_no_lines(tmp_path: Path) -> None:
    """It is told, rather than shown as nothing."""
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(SentinelError, match=r"metrics.jsonl is empty, expected a JSON object per line"):
        lines(tmp_path / "metrics.jsonl")
