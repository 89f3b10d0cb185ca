"""Git histories in a folder: find the repository that has a commit, and the last harmless change before the commit."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rl_sentinel.audit.source.git_revision import commit_of, git
from rl_sentinel.core.errors import SentinelError

#: How deep below the folder repositories are searched: ``framework`` and ``owner+name/repo``.
_DEPTH = 2

#: Words in the subject of a commit that suggest a fix.
_FIXES = re.compile(r"fix|bug|revert|correct|wrong|repair|patch|issue|nan\b", re.IGNORECASE)

#: Most earlier changes of a file that are searched for one that fixes nothing.
_CHANGES = 50


@dataclass(slots=True)
class Histories:
    """The repositories in a folder, bare or with a work tree."""

    folder: Path
    _repository_of: dict[str, Path | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate the folder.

        Raises:
            SentinelError: if the path is not a folder, or the folder has no repository.
        """
        if next(self._repositories(), None) is None:
            raise SentinelError(f"--git is {str(self.folder)!r}, expected a folder with a git repository per framework")

    def of(self, commit: str) -> Path | None:
        """The repository that has a commit; None if no repository has it."""
        if commit not in self._repository_of:
            self._repository_of[commit] = next((r for r in self._repositories() if _has(r, commit)), None)
        return self._repository_of[commit]

    def _repositories(self) -> Iterator[Path]:
        """The folder itself if it is a repository, otherwise the repositories in it."""
        level = [self.folder]
        for _ in range(_DEPTH + 1):
            inner = []
            for place in level:
                if (place / ".git").exists() or ((place / "HEAD").is_file() and (place / "objects").is_dir()):
                    yield place
                elif place.is_dir():
                    inner += sorted(p for p in place.iterdir() if p.is_dir())
            level = inner


def previous_harmless_change(repository: Path, commit: str, file: str) -> str:
    """The newest commit, at or before ``commit``, that changes a file and does not name a fix in its subject.

    Merges are skipped. Empty if the latest changes of the file all name a fix.
    """
    log = git(repository, "log", f"-{_CHANGES}", "--no-merges", "--format=%H %P%x09%s", commit, "--", file)
    for line in log.decode(errors="replace").splitlines():
        commits, _, subject = line.partition("\t")
        if len(commits.split()) == 2 and not _FIXES.search(subject):
            return commits.split()[0]
    return ""


def _has(repository: Path, commit: str) -> bool:
    try:
        commit_of(repository, commit)
    except SentinelError:
        return False
    return True
