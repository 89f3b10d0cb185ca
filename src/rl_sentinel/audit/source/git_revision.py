"""Write the code of a git revision to a folder, without media, which filtered clones often lack."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from rl_sentinel.core.errors import SentinelError

_ORDINARY = ("100644", "100755")

#: Files that no code reads, and that filtered clones often lack.
_MEDIA = (".gif", ".ipynb", ".jpeg", ".jpg", ".md", ".mp4", ".pdf", ".png", ".svg", ".webp")

#: Files at the top of a project that state its version.
_ABOUT = ("pyproject.toml", "VERSION")


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run git and return its output.

    Raises:
        SentinelError: if it fails, with the first line of git's error output.
    """
    command = ["git", "-c", "safe.directory=*", "-C", str(folder), *arguments]
    try:
        run = subprocess.run(command, capture_output=True, input=stdin, check=False)  # noqa: S603 - fixed program
    except FileNotFoundError as error:
        raise SentinelError("git is not installed, expected the program git for a target with a history") from error
    if run.returncode:
        lines = run.stderr.decode(errors="replace").strip().splitlines()[:1] or ["no answer"]
        message = f"git {arguments[0]} failed in {folder} ({lines[0]}), expected a folder with a complete git history"
        raise SentinelError(message)
    return run.stdout


def commit_of(folder: Path, revision: str) -> str:
    """The full hash of the commit that a revision names.

    Raises:
        SentinelError: if the revision does not exist, or the folder has no git history.
    """
    try:
        return git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
    except SentinelError:
        git(folder, "rev-parse", "--git-dir")  # raises if the folder is wrong
        message = (
            f"{folder} has no revision {revision!r}, expected a commit, tag or branch: `git log --all` lists commits"
        )
        raise SentinelError(message) from None


def write_out(folder: Path, commit: str, packages: Iterable[str], to: Path) -> None:
    """Write import packages, all Python files, ``pyproject.toml`` and ``VERSION`` of a commit to a folder.

    Pictures and documents are left out.

    Raises:
        SentinelError: if the history lacks one of these files.
    """
    names, blobs, folders = [], [], tuple(f"{package}/" for package in packages)
    for line in git(folder, "ls-tree", "-r", "-z", commit).decode(errors="surrogateescape").split("\0"):
        entry, _, name = line.partition("\t")
        mode, _, blob = entry.partition(" blob ")
        inside = name.startswith(folders) and not name.lower().endswith(_MEDIA)
        if mode in _ORDINARY and (inside or name.endswith(".py") or name in _ABOUT):
            names.append(name)
            blobs.append(blob)
    answer = git(folder, "cat-file", "--batch", stdin="\n".join(blobs).encode() + b"\n") if blobs else b""
    at = 0
    for name in names:
        end = answer.index(b"\n", at)
        head = answer[at:end].split()
        if head[-1] == b"missing":
            message = f"{folder} lacks {name} at {commit[:9]}, expected a complete history: clone without --filter"
            raise SentinelError(message)
        size = int(head[-1])
        place = to / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(answer[end + 1 : end + 1 + size])
        at = end + size + 2
