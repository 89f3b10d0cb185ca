"""Small git histories for tests."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_WHO = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def run_git(folder: Path, *arguments: str) -> str:
    """What git prints in a folder."""
    environment = os.environ | _WHO
    run = subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return run.stdout.strip()


def commit_files(folder: Path, files: Mapping[str, str], message: str) -> str:
    """Write files, commit all changes (in a new repository where there is none yet), and return the commit."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    if not (folder / ".git").exists():
        run_git(folder, "init", "-q")
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-qm", message)
    return run_git(folder, "rev-parse", "HEAD")
