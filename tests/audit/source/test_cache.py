"""The cache: where it is, what it makes once, and what it does when it cannot write."""

from pathlib import Path
from threading import Thread

import platformdirs
import pytest

from rl_sentinel.audit.source import cache
from rl_sentinel.core.errors import SentinelError


def _make(to: Path) -> None:
    (to / "a.py").write_text("1", encoding="utf-8")


def test_home_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RL_SENTINEL_CACHE", "mine")
    assert cache.home() == tmp_path / "mine"
    monkeypatch.delenv("RL_SENTINEL_CACHE")
    assert cache.home() == Path(platformdirs.user_cache_dir("rl-sentinel"))


def test_entry_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path))
    made: list[Path] = []

    def make(to: Path) -> None:
        made.append(to)
        _make(to)

    assert cache.cached_folder("k", "x", make) == cache.cached_folder("k", "x", make) == tmp_path / "k" / "x"
    assert len(made) == 1


def test_digest_sees_names_and_bytes_of_sources(tmp_path: Path) -> None:
    _make(tmp_path)
    before = cache.digest_of(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"1")
    assert cache.digest_of(tmp_path) == before
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert cache.digest_of(tmp_path) != before


def test_entry_is_served_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path))
    place = cache.cached_folder("k", "x", _make)

    def refuse(_path: str) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache, "FileLock", refuse)
    assert cache.cached_folder("k", "x", _make) == place
    with pytest.raises(SentinelError) as told:
        cache.cached_folder("k", "y", _make)
    assert str(told.value) == (
        f"cache[{tmp_path}] cannot be written (Permission denied): set RL_SENTINEL_CACHE to a writable folder"
    )
    (place / "a.py").write_text("2", encoding="utf-8")
    with pytest.raises(SentinelError, match="is damaged"):
        cache.cached_folder("k", "x", _make)


def test_what_could_not_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path))

    def fails(to: Path) -> None:
        _make(to)
        raise SentinelError("there is none")

    with pytest.raises(SentinelError, match="there is none"):
        cache.cached_folder("releases", "verl-9.9.9", fails)
    assert list((tmp_path / "releases").iterdir()) == []
    assert cache.cached_folder("releases", "verl-9.9.9", _make).is_dir()


def test_file_in_the_place_of_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path))
    place = tmp_path / "k" / "x"
    place.parent.mkdir()
    place.write_text("", encoding="utf-8")
    with pytest.raises(SentinelError) as told:
        cache.cached_folder("k", "x", _make)
    assert (
        str(told.value) == f"cache[{place}] is a file, expected a folder: delete this file, and run the command again"
    )


def test_entry_that_another_process_made_meanwhile_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path))

    def overtaken(to: Path) -> None:
        _make(to)
        (tmp_path / "k" / "x.lock").unlink()
        other = Thread(target=cache.cached_folder, args=("k", "x", _make))
        other.start()
        other.join()

    assert cache.cached_folder("k", "x", overtaken) == tmp_path / "k" / "x"
    assert sorted(p.name for p in (tmp_path / "k").iterdir() if p.suffix != ".lock") == ["x"]
