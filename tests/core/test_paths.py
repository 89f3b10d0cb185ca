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
    ("text", "way"), [("", "name one"), (" ", "name one"), ("a\0b", "name one"), ("~nouser41/x", "no such home folder")]
)
def test_what_is_no_path_is_one_line(text: str, way: str) -> None:
    with pytest.raises(SentinelError) as told:
        expanded(text, "--png")
    assert str(told.value).startswith(f"--png is {text!r}, expected a path: {way}")
