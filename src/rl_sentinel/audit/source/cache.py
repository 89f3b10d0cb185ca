"""The cache of downloaded code: write folders atomically under a lock, verify them when read."""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs
from filelock import FileLock

from rl_sentinel.core.errors import SentinelError

#: The file in a cached folder that holds the digest of the other files.
_SEAL = ".rl-sentinel-seal.json"


def home() -> Path:
    """The root folder of the cache, as an absolute path; ``RL_SENTINEL_CACHE`` overrides it."""
    path = os.environ.get("RL_SENTINEL_CACHE")
    return Path(path).expanduser().resolve() if path else Path(platformdirs.user_cache_dir("rl-sentinel"))


def digest_of(folder: Path) -> str:
    """SHA-256 over names and bytes of all files below a folder, except ``__pycache__`` and the seal."""
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.name == _SEAL or "__pycache__" in path.parts:
            continue
        total.update(str(path.relative_to(folder)).encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def cached_folder(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder ``kind/key`` of the cache, created by ``make`` if it does not exist.

    ``make`` fills an empty folder that is moved into place only when it is complete. A read-only cache can still be
    read.

    Raises:
        SentinelError: if the entry on disk was changed, or the cache cannot be written.
    """
    entry = home() / kind / key
    with contextlib.ExitStack() as stack:
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(f"{entry}.lock"))
            present = entry.exists()
            partial = entry if present else Path(tempfile.mkdtemp(prefix=f".{key}-", dir=entry.parent))
        except OSError as error:
            if not entry.is_dir():
                raise _unusable(error) from error
            present, partial = True, entry
        if present:
            _verify(entry)
            return entry
        try:
            make(partial)
            (partial / _SEAL).write_text(json.dumps({"sha256": digest_of(partial)}), encoding="utf-8")
            partial.rename(entry)
        except BaseException as error:
            shutil.rmtree(partial, ignore_errors=True)
            # If the lock was removed, another process may have created the entry meanwhile.
            if isinstance(error, OSError) and entry.is_dir():
                _verify(entry)
                return entry
            Path(f"{entry}.lock").unlink(missing_ok=True)  # a failed download leaves nothing behind
            raise
    return entry


def _unusable(error: OSError) -> SentinelError:
    fix = "set RL_SENTINEL_CACHE to a writable folder"
    return SentinelError(f"cache[{home()}] cannot be written ({error.strerror}): {fix}")


def _verify(entry: Path) -> None:
    if not entry.is_dir():
        raise SentinelError(f"cache[{entry}] is a file, expected a folder: delete this file, and run the command again")
    try:
        sealed = str(json.loads((entry / _SEAL).read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        sealed = ""
    actual = digest_of(entry)
    if sealed != actual:
        difference = f"sha256 {actual[:12]}, expected {sealed[:12]}" if sealed else f"{_SEAL} is missing or unreadable"
        message = f"cache[{entry}] is damaged ({difference}): delete this folder, and run the command again"
        raise SentinelError(message)
