"""Check output paths before a command runs, and write files atomically."""

import os
import tempfile
from pathlib import Path

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.paths import expanded


def writable(path: Path, option: str) -> Path:
    """Return the resolved path if a file can be written there.

    Raises:
        SentinelError: one line that names the option, the path and the reason.
    """
    real = expanded(str(path), option).resolve()
    if real.is_dir():
        raise SentinelError(f"{option} is {str(path)!r}, expected a file, but it is a folder: name another path")
    if _special(real):
        return real
    if not real.parent.is_dir():
        fix = "name another path" if real.parent.exists() else "create the folder"
        raise SentinelError(f"{option} is {str(path)!r}, expected a file in an existing folder: {fix}")
    _check_writable(real.parent, path, option)
    return real


def folder(path: Path, option: str) -> Path:
    """Return the resolved path if it is a writable folder, or if a folder can be created there.

    Raises:
        SentinelError: one line that names the option, the path and the reason.
    """
    real = expanded(str(path), option).resolve()
    existing = next(p for p in (real, *real.parents) if p.exists())
    if not existing.is_dir():
        raise SentinelError(
            f"{option} is {str(path)!r}, expected a folder, but {existing} is a file: name another path"
        )
    _check_writable(existing, path, option)
    return real


def put(path: Path, text: str) -> None:
    """Write a file atomically, by a rename; write directly to a device or a pipe.

    Raises:
        SentinelError: one line that names the file and the reason.
    """
    try:
        _write(path, text)
    except OSError as error:
        message = f"{path} cannot be written ({error.strerror or error}): name another path"
        raise SentinelError(message) from error


def _write(path: Path, text: str) -> None:
    if _special(path):
        path.write_text(text, encoding="utf-8")
        return
    handle, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_mask()
        Path(partial).chmod(mode)
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _special(path: Path) -> bool:
    """Whether the path is a device or a pipe, which a rename cannot replace."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _check_writable(folder: Path, path: Path, option: str) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        message = f"{option} is {str(path)!r}, which cannot be written ({error.strerror}): name another path"
        raise SentinelError(message) from error


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
