"""``FolderListing`` answers as the file system does, with one read of each folder."""

import os
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from rl_sentinel.adapters.folder_listing import FolderListing

PATHS: list[Sequence[str]] = [
    ["house"],
    ["house", "core.py"],
    ["house", "core.py", "f.py"],
    ["house", "train"],
    ["house", "train", "__init__.py"],
    ["house", "train.py"],
    ["lost"],
    ["lost", "core.py"],
    ["linked"],
    ["linked", "core.py"],
]


def test_answers_as_the_file_system(tmp_path: Path) -> None:
    (tmp_path / "house" / "train").mkdir(parents=True)
    (tmp_path / "house" / "train" / "__init__.py").touch()
    (tmp_path / "house" / "core.py").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "house")
    listing = FolderListing(tmp_path)
    for parts in PATHS:
        place = tmp_path.joinpath(*parts)
        assert (listing.is_folder(parts), listing.is_file(parts)) == (place.is_dir(), place.is_file()), parts
    assert listing.is_folder([])


def test_reads_each_folder_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house").mkdir()
    scandir = Mock(wraps=os.scandir)
    monkeypatch.setattr(os, "scandir", scandir)
    listing = FolderListing(tmp_path)
    for _ in range(3):
        assert not listing.is_file(["house", "core.py"])
        assert not listing.is_file(["lost", "core.py"])
    assert [call.args[0] for call in scandir.call_args_list] == [tmp_path, tmp_path / "house"]
