"""The state of all files under a folder, and the changes between two states, if only function bodies changed."""

import base64
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_sentinel.audit.source.changed_functions import FileChange, compare

#: Most characters of Python source that are stored for one tree.
_MOST = 64 * 2**20


@dataclass(frozen=True, slots=True)
class TreeState:
    """The text of each Python file in UTF-8, and the size and time of each other file, by path relative to the root."""

    texts: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The state as plain JSON values, with the texts compressed."""
        packed = base64.b85encode(zlib.compress(json.dumps(dict(self.texts)).encode(), 1)).decode()
        return {"texts": packed, "others": dict(self.others)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "TreeState":
        """Read what :meth:`as_json` wrote."""
        texts = json.loads(zlib.decompress(base64.b85decode(data["texts"])))
        return cls(texts, data["others"])


def tree_state(root: Path) -> TreeState | None:
    """The state of a folder without hidden folders and ``__pycache__``.

    None if its Python source is too large to store, or if a folder in it is a symbolic link.
    """
    texts, others, size = dict[str, str](), dict[str, str](), 0
    for folder, folders, names in os.walk(root):
        if any(Path(folder, f).is_symlink() for f in folders):
            return None
        folders[:] = sorted(f for f in folders if f[0] != "." and f != "__pycache__")
        for name in sorted(names):
            file = Path(folder, name)
            relative = str(file.relative_to(root))
            text = _text(file)
            if text is not None:
                texts[relative] = text
                size += len(text)
            elif file.exists():
                status = file.stat()
                others[relative] = f"{status.st_size} {status.st_mtime_ns}"
        if size > _MOST:
            return None
    return TreeState(texts, others)


def _text(file: Path) -> str | None:
    if file.suffix != ".py":
        return None
    try:
        return file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def changes(old: TreeState, new: TreeState) -> dict[str, FileChange] | None:
    """The changed files and their changes; None if anything but bodies of Python functions changed."""
    if old.others != new.others or old.texts.keys() != new.texts.keys():
        return None
    changed = dict[str, FileChange]()
    for file, text in new.texts.items():
        if old.texts[file] != text:
            change = compare(old.texts[file], text)
            if change is None:
                return None
            changed[file] = change
    return changed
