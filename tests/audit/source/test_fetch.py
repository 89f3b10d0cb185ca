"""Where a target's code comes from: unpacking, digests, damaged caches."""

import zipfile
from pathlib import Path

import pytest

from rl_sentinel.audit.source.cache import cached_folder
from rl_sentinel.audit.source.fetch import unpack
from rl_sentinel.core.errors import SentinelError


def _wheel(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_unpack_puts_purelib_where_an_installer_does(tmp_path: Path) -> None:
    files = {"a/__init__.py": "1", "a-1.data/purelib/b.py": "2", "a-1.data/scripts/run": "3"}
    unpack(_wheel(tmp_path / "a.whl", **files), tmp_path / "out")
    found = sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert found == ["a/__init__.py", "b.py"]


def test_unpack_refuses_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(SentinelError, match=r"contains '\.\./evil\.py', expected paths inside of the wheel$"):
        unpack(_wheel(tmp_path / "a.whl", **{"../evil.py": "1"}), tmp_path / "out")


def test_damaged_cache_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path))

    def make(to: Path) -> None:
        (to / "a.py").write_text("1", encoding="utf-8")

    place = cached_folder("releases", "x-1", make)
    assert cached_folder("releases", "x-1", lambda _to: None) == place
    (place / "a.py").write_text("2", encoding="utf-8")
    with pytest.raises(SentinelError, match=r"is damaged .*: delete this folder, and run"):
        cached_folder("releases", "x-1", lambda _to: None)


def test_failed_fetch_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path))

    def fail(to: Path) -> None:
        (to / "half").write_text("", encoding="utf-8")
        raise SentinelError("no network")

    with pytest.raises(SentinelError):
        cached_folder("releases", "x-1", fail)
    assert list((tmp_path / "releases").iterdir()) == []
