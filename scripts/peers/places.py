"""Where a framework's code and tests come from: a folder, a revision of a git folder, a source distribution."""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from peers.peer import Peer
from rl_sentinel.audit.source.cache import cached_folder
from rl_sentinel.audit.source.fetch import pip
from rl_sentinel.audit.source.git_revision import commit_of, write_out
from rl_sentinel.core.errors import SentinelError

#: What of the environment tests may see.
_KEPT = ("PATH", "HOME", "LANG", "OMP_NUM_THREADS", "RL_SENTINEL_CACHE", "TMPDIR")


def place(peer: Peer, given: str) -> tuple[Path, str]:
    """The folder that holds package and tests of a peer, and how it is called; nothing of it is copied elsewhere.

    Args:
        peer: the framework.
        given: ``PATH`` or ``PATH#REVISION``; empty where the source distribution is to be taken.

    Raises:
        SentinelError: if there is no such folder or revision, or it holds no package or no tests.
    """
    name = peer.framework.name
    path, _, revision = given.partition("#")
    if not given:
        release = peer.release.replace("==", "-")
        found, called = cached_folder("peers", release, lambda to: _unpacked(peer.release, to)), peer.release
    elif not Path(path).is_dir():
        raise SentinelError(
            f"checkout[{name}] is {path!r}, expected a folder with {peer.framework.package}/ and tests/"
        )
    elif revision or not (Path(path) / peer.framework.package).is_dir():
        commit = commit_of(Path(path), revision or peer.revision)
        package = peer.framework.package
        found = cached_folder("peers", f"{name}-{commit}", lambda to: write_out(Path(path), commit, package, to))
        called = f"{name}@{commit[:9]}"
    else:
        found, called = Path(path), f"{name}@{Path(path).name}"
    for folder in (peer.framework.package, "tests"):
        if not (found / folder).is_dir():
            raise SentinelError(
                f"{called} holds no {folder}/, expected a whole checkout: name one ({name}=PATH#REVISION)"
            )
    return found.resolve(), called


def _unpacked(release: str, to: Path) -> None:
    """Fetch a source distribution and unpack it; pip asks it for its metadata, which runs its code, as its tests do."""
    with tempfile.TemporaryDirectory() as scratch:
        run = pip("download", "--no-deps", "--no-binary=:all:", "-d", scratch, release)
        archives = list(Path(scratch).glob("*.tar.gz"))
        if run.returncode or not archives:
            last = (run.stderr.strip().splitlines() or ["no answer"])[-1]
            message = (
                f"{release} cannot be fetched as a source distribution ({last[:160]}), expected one: name a checkout"
            )
            raise SentinelError(message)
        with tarfile.open(archives[0]) as archive:
            archive.extractall(scratch, filter="data")
        (top,) = (p for p in Path(scratch).iterdir() if p.is_dir())
        for part in top.iterdir():
            part.rename(to / part.name)


def files_with(root: Path, words: frozenset[str]) -> list[str]:
    """Test files below ``tests`` that hold one of these words, relative to ``root``, in order."""
    found = []
    for file in sorted((root / "tests").rglob("test_*.py")):
        text = file.read_text(encoding="utf-8", errors="replace")
        if any(word in text for word in words):
            found.append(str(file.relative_to(root)))
    return found


def python(*arguments: str, folder: str, seconds: int, more: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter in a folder, with ``more`` to import from, on a CPU and away from hubs."""
    world = {k: v for k, v in os.environ.items() if k in _KEPT}
    world |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    world["PYTHONPATH"] = os.pathsep.join(filter(None, (more, os.environ.get("PYTHONPATH", ""))))
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=world, timeout=seconds)
