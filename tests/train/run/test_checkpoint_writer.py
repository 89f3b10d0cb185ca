"""Checkpoints in the background: one at a time, in order, and no error is lost."""

from threading import Event

import pytest

from rl_sentinel.train.run.checkpoint_writer import CheckpointWriter


def _fail() -> None:
    raise OSError("disk full")


def test_in_the_background_the_loop_goes_on_and_waits_at_the_next_checkpoint() -> None:
    writer, may_end, written = CheckpointWriter(background=True), Event(), list[int]()

    def first() -> None:
        assert may_end.wait(timeout=30)
        written.append(1)

    writer.write(first)
    assert written == []
    may_end.set()
    writer.write(lambda: written.append(2))
    assert written[0] == 1
    writer.close()
    assert written == [1, 2]


def test_without_a_thread_the_checkpoint_is_written_at_once() -> None:
    writer, written = CheckpointWriter(background=False), list[int]()
    writer.write(lambda: written.append(1))
    assert written == [1]
    with pytest.raises(OSError, match="disk full"):
        writer.write(_fail)
    writer.close()


def test_an_error_in_the_background_is_raised_at_the_next_checkpoint_or_at_the_end() -> None:
    writer, written = CheckpointWriter(background=True), list[int]()
    writer.write(_fail)
    with pytest.raises(OSError, match="disk full"):
        writer.write(lambda: written.append(1))
    assert written == []
    writer.write(_fail)
    with pytest.raises(OSError, match="disk full"):
        writer.close()
