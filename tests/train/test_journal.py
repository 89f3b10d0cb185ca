"""A run's folder."""

import json
from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.journal import Journal, lines
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
    Journal.opened(recipe(tmp_path, checkpoint={"every": 3})).close()
    with pytest.raises(SentinelError, match=r"holds a run of another recipe \(seed, steps differ\)"):
        Journal.opened(recipe(tmp_path, seed=4, steps=9))


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


def test_lines_that_are_none_are_refused(tmp_path: Path) -> None:
    """With the file."""
    place = tmp_path / "metrics.jsonl"
    place.write_text(json.dumps({"step": 1}) + "\n{")
    with pytest.raises(SentinelError, match=r"metrics.jsonl cannot be read .* expected a JSON object per line"):
        lines(place)
