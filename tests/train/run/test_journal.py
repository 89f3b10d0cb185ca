"""A run's directory and log files."""

import json
from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.run.journal import Journal, read_metrics
from training import recipe


def test_files_are_truncated_to_a_position(tmp_path: Path) -> None:
    journal = Journal.open(recipe(tmp_path / "run"))
    for step in (1, 2):
        journal.append(journal.metrics, {"step": step})
        journal.append(journal.timing, {"step": step, "seconds": 0.5})
    position, before = journal.position(), journal.metrics.read_bytes()
    journal.append(journal.metrics, {"step": 3})
    journal.append(journal.timing, {"step": 3, "seconds": 0.5})
    with journal.metrics.open("a") as file:
        file.write('{"step": 4, "rew')
    journal.truncate(position)
    assert journal.metrics.read_bytes() == before == b'{"step": 1}\n{"step": 2}\n'
    assert [line["step"] for line in read_metrics(journal.timing)] == [1, 2]
    journal.truncate(None)
    assert journal.metrics.read_bytes() == b""
    journal.close()


def test_other_metrics_than_at_the_checkpoint_are_rejected(tmp_path: Path) -> None:
    journal = Journal.open(recipe(tmp_path / "run"))
    journal.append(journal.metrics, {"step": 1})
    position = journal.position()
    journal.metrics.write_text('{"step": 9}\n')
    with pytest.raises(SentinelError, match=r"metrics.jsonl differs from the checkpoint, expected the 1 lines that"):
        journal.truncate(position)
    journal.close()


def test_directory_belongs_to_one_run_of_one_recipe(tmp_path: Path) -> None:
    first = Journal.open(recipe(tmp_path))
    words = r"which another run uses: wait until that run ends, or name another folder with out=DIR$"
    with pytest.raises(SentinelError, match=words):
        Journal.open(recipe(tmp_path))
    first.close()
    first.append(first.metrics, {"step": 1})
    more = {"checkpoint": {"every": 3}, "rollout": {"url": "http://127.0.0.1:9"}, "steps": 9}
    Journal.open(recipe(tmp_path, **more)).close()
    assert json.loads((tmp_path / "recipe.json").read_text())["steps"] == 9
    differ = r"has a run of another recipe \(seed, update.rate differ\)"
    with pytest.raises(SentinelError, match=differ):
        Journal.open(recipe(tmp_path, seed=4, steps=9, update={"rate": 7.0}))
    Journal.open(recipe(tmp_path)).close()
    falling = {"update": {"schedule": "linear"}}
    other = tmp_path / "falling"
    first = Journal.open(recipe(other, **falling))
    first.append(first.metrics, {"step": 1})
    first.close()
    with pytest.raises(SentinelError, match=r"another recipe \(steps differs\)"):
        Journal.open(recipe(other, steps=9, **falling))


def test_fewer_steps_than_are_done_are_rejected(tmp_path: Path) -> None:
    journal = Journal.open(recipe(tmp_path, steps=5))
    for step in (1, 2, 3):
        journal.append(journal.metrics, {"step": step})
    journal.close()
    words = r"steps is 2, expected at least 3, the steps that are done in .*: raise steps, or name another folder with"
    with pytest.raises(SentinelError, match=words):
        Journal.open(recipe(tmp_path, steps=2))
    assert json.loads((tmp_path / "recipe.json").read_text())["steps"] == 5


def test_directory_without_a_step_is_taken_over(tmp_path: Path) -> None:
    Journal.open(recipe(tmp_path, seed=1)).close()
    Journal.open(recipe(tmp_path, seed=2)).close()
    assert json.loads((tmp_path / "recipe.json").read_text())["seed"] == 2


def test_full_disk_leaves_no_file_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.replace", full)
        with pytest.raises(SentinelError, match=r"recipe.json cannot be written \(No space left on device\)"):
            Journal.open(recipe(tmp_path))
    assert [p.name for p in tmp_path.iterdir() if p.name != ".lock"] == []
    Journal.open(recipe(tmp_path)).close()


def test_directory_that_cannot_be_created_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SentinelError, match=r"out\[.*file/run\] cannot be used \(Not a directory\): name another fold"):
        Journal.open(recipe(tmp_path / "file" / "run"))


def test_full_disk_is_one_line(tmp_path: Path) -> None:
    journal = Journal.open(recipe(tmp_path / "run"))
    journal.metrics.symlink_to("/dev/full")
    with pytest.raises(SentinelError, match=r"metrics.jsonl cannot be written \(No space left on device\): make room"):
        journal.append(journal.metrics, {"step": 1})
    journal.close()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2 cannot be read"),
        (
            "5",
            "line 2 is '5', expected an object whose step is an integer: no run wrote this; name the folder of a run$",
        ),
        ("[1]", r"line 2 is '\[1\]', expected an object whose step is an integer"),
        ("{}", "line 2 is '{}', expected an object whose step is an integer"),
        (
            '{"step": 2, "reward": null}',
            "line 2: 'reward' is None, expected a number: no run wrote this; name the folder of a run$",
        ),
        ('{"step": 2, "reward": "x"}', "line 2: 'reward' is 'x', expected a number"),
        (json.dumps({"step": 2, "reward": "x" * 1000}), r"line 2: 'reward' is 'x{59}\.\.\., expected a number: no run"),
    ],
)
def test_invalid_lines_are_rejected(tmp_path: Path, line: str, words: str) -> None:
    place = tmp_path / "metrics.jsonl"
    place.write_text(json.dumps({"step": 1}) + "\n" + line)
    with pytest.raises(SentinelError, match=f"metrics.jsonl {words}"):
        read_metrics(place)


def test_other_encoding_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b"\xff")
    with pytest.raises(
        SentinelError,
        match=r"metrics.jsonl is not UTF-8 \('utf-8'.*\), expected a JSON object per line: no run wrote this",
    ):
        read_metrics(tmp_path / "metrics.jsonl")


def test_empty_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(SentinelError, match=r"metrics.jsonl is empty, expected a JSON object per line"):
        read_metrics(tmp_path / "metrics.jsonl")
