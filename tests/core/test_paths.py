"""Paths as users write them."""

from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.paths import expanded


def test_home_is_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert expanded("~/a", "out") == Path("/somewhere/a")
    assert expanded("a/~b", "out") == Path("a/~b")


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("", "name a file or folder"),
        (" ", "name a file or folder"),
        ("a\0b", "name a file or folder"),
        ("~nouser41/x", "write it without ~, since this home folder does not exist"),
    ],
)
def test_what_is_no_path_is_one_line(text: str, way: str) -> None:
    with pytest.raises(SentinelError) as told:
        expanded(text, "--png")
    assert str(told.value).startswith(f"--png is {text!r}, expected a path: {way}")
