"""Files are tried before, written aside, and moved into place."""

from pathlib import Path

import pytest

from rl_sentinel.cli import output_paths
from rl_sentinel.core.errors import SentinelError


def test_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "out.json"
    output_paths.put(file, "old")
    file.chmod(0o640)
    output_paths.put(file, "new")
    assert file.read_text(encoding="utf-8") == "new"
    assert file.stat().st_mode & 0o777 == 0o640

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(SentinelError, match=r"out.json cannot be written .No space left on device.: name another path"):
        output_paths.put(file, "newer")
    assert file.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [file]


def test_link_is_followed(tmp_path: Path) -> None:
    file, link = tmp_path / "real", tmp_path / "link"
    file.write_text("old", encoding="utf-8")
    link.symlink_to(file)
    output_paths.put(output_paths.writable(link, "--json"), "new")
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == "new"


def test_device_is_written_to() -> None:
    output_paths.put(output_paths.writable(Path("/dev/null"), "--json"), "text")
    assert not Path("/dev/null").is_file()


def test_what_cannot_be_written_is_said_before(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    told = []
    for ask, path in (
        (output_paths.writable, tmp_path),
        (output_paths.writable, tmp_path / "no" / "x"),
        (output_paths.writable, Path("/proc/x")),
        (output_paths.folder, file / "x"),
        (output_paths.folder, Path("/proc/x")),
    ):
        with pytest.raises(SentinelError) as error:
            ask(path, "--to")
        told.append(str(error.value))
    assert told == [
        f"--to is '{tmp_path}', expected a file, but it is a folder: name another path",
        f"--to is '{tmp_path}/no/x', expected a file in an existing folder: create the folder",
        "--to is '/proc/x', which cannot be written (No such file or directory): name another path",
        f"--to is '{file}/x', expected a folder, but {file} is a file: name another path",
        "--to is '/proc/x', which cannot be written (No such file or directory): name another path",
    ]
    assert output_paths.folder(tmp_path / "a" / "b", "--to") == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == [file]
