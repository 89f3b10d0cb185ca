"""``FolderListing``: ask what a folder contains; each folder below it is read at most once."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class FolderListing:
    """The files and folders below a root. Each folder is read once, since adapters ask for a path thousands of times.

    Example:
        >>> from pathlib import Path
        >>> import rl_sentinel
        >>> listing = FolderListing(Path(rl_sentinel.__file__).parent)
        >>> listing.is_folder(["core"]), listing.is_file(["core", "batch.py"]), listing.is_file(["core", "lost.py"])
        (True, True, False)
    """

    root: Path
    _names: dict[tuple[str, ...], dict[str, bool]] = field(default_factory=dict)

    def is_folder(self, parts: Sequence[str]) -> bool:
        """Whether the root has this folder; the root itself has no parts."""
        return not parts or self._in(tuple(parts[:-1])).get(parts[-1], False)

    def is_file(self, parts: Sequence[str]) -> bool:
        """Whether the root has this file."""
        return not self._in(tuple(parts[:-1])).get(parts[-1], True)

    def _in(self, folder: tuple[str, ...]) -> dict[str, bool]:
        """The names in a folder, and whether each is a folder; empty if there is no such folder."""
        if folder not in self._names:
            place = self.root.joinpath(*folder)
            if self.is_folder(folder) and place.is_dir():
                with os.scandir(place) as entries:
                    self._names[folder] = {entry.name: entry.is_dir() for entry in entries}
            else:
                self._names[folder] = {}
        return self._names[folder]
