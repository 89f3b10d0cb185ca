"""Light packages are installed aside, once per lock."""

import subprocess
from pathlib import Path

import pytest

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.audit.source import overlay
from rl_sentinel.core.errors import SentinelError


def _framework(light: str) -> Framework:
    return Framework(name="f", package="f", boundaries=lambda _target: iter(()), light=lambda _version: light)


def test_one_folder_per_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path))
    asked: list[tuple[str, ...]] = []

    def pip(*arguments: str) -> "subprocess.CompletedProcess[str]":
        asked.append(arguments)
        return subprocess.CompletedProcess(arguments, 0, "", "")

    monkeypatch.setattr(overlay, "pip", pip)
    [first] = overlay.overlays(_framework("a==1 b==2"), "")
    [again] = overlay.overlays(_framework("b==2\na==1"), "")
    [other] = overlay.overlays(_framework("a==1 b==3"), "")
    assert first == again != other
    assert overlay.overlays(_framework(""), "") == ()
    assert [a[-2:] for a in asked] == [("a==1", "b==2"), ("a==1", "b==3")]
    assert all("--no-deps" in a for a in asked)


def test_failure_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path))
    said = "WARNING: x\nERROR: first\nERROR: No matching distribution found for a==1\n"
    monkeypatch.setattr(overlay, "pip", lambda *a: subprocess.CompletedProcess(a, 1, "", said))
    with pytest.raises(SentinelError) as told:
        overlay.overlays(_framework("a==1"), "")
    assert str(told.value) == (
        "packages that f imports (a==1) are not in the cache and cannot be fetched "
        "(ERROR: No matching distribution found for a==1): fix this, or connect once to an index of these packages"
    )
    assert [p for p in (tmp_path / "overlays").iterdir() if p.is_dir()] == []
