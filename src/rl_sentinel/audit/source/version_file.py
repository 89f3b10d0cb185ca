"""Read the version that a source tree states, without running its code."""

import re
import tomllib
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

#: Files of a package that hold only its version, in order of priority.
_PLAIN = ("VERSION", "version.txt")

#: Modules of a package that may assign the version as a string.
_MODULES = ("version.py", "_version.py", "__version__.py", "__about__.py", "__init__.py")

_ASSIGNED = re.compile(r"""^(?:__version__|version|VERSION)\s*(?::\s*str\s*)?=\s*["']([^"'\n]+)["']""", re.MULTILINE)


def stated(root: Path, package: str, distribution: str, where: str = "") -> str:
    """The version that a checkout states; may be empty.

    Args:
        root: the folder that holds the import package.
        package: the import package's name.
        distribution: its name on the package index, or empty if it is not there.
        where: the version file named by the adapter, relative to the package.

    Returns:
        A normalised version, such as ``"0.9.1"``. Read in this order: files of the package, ``*.dist-info`` beside it,
        then ``pyproject.toml`` and ``VERSION`` beside it (or above a ``src`` folder).

    Example:
        >>> from pathlib import Path
        >>> from rl_sentinel.audit.source.version_file import stated
        >>> stated(Path("/nonesuch"), "verl", "verl")
        ''
    """
    home = root / package
    names: set[str] = {canonicalize_name(n) for n in (package, distribution) if n}
    files = [_line(home / name) for name in ([where] if where else []) + list(_PLAIN)]
    files += [_assigned(home / name) for name in _MODULES]
    beside = [_metadata(p, names) for p in sorted(root.glob("*.dist-info"))]
    above = [root, root.parent] if root.name == "src" else [root]
    projects = [found for p in above for found in (_project(p / "pyproject.toml", names), _of_project(p, names))]
    return next(filter(None, (*files, *beside, *projects)), "")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _number(text: object) -> str:
    try:
        return str(Version(str(text).strip()))
    except InvalidVersion:
        return ""


def _line(file: Path) -> str:
    return _assigned(file) if file.suffix == ".py" else _number(_text(file))


def _assigned(file: Path) -> str:
    found = _ASSIGNED.search(_text(file))
    return _number(found[1]) if found else ""


def _metadata(folder: Path, names: set[str]) -> str:
    head = HeaderParser().parsestr(_text(folder / "METADATA"))
    return _number(head["Version"]) if canonicalize_name(head["Name"] or "") in names else ""


def _of_project(folder: Path, names: set[str]) -> str:
    """The version in ``VERSION`` beside the project file, if that file or ``setup.py`` names the project."""
    try:
        project: Any = tomllib.loads(_text(folder / "pyproject.toml")).get("project", {})
    except tomllib.TOMLDecodeError:
        return ""
    mine = isinstance(project, dict) and canonicalize_name(str(project.get("name", ""))) in names
    legacy = project == {} and (folder / "setup.py").is_file()
    return _line(folder / "VERSION") if mine or legacy else ""


def _project(file: Path, names: set[str]) -> str:
    try:
        project: Any = tomllib.loads(_text(file)).get("project", {})
    except tomllib.TOMLDecodeError:
        return ""
    mine = isinstance(project, dict) and canonicalize_name(str(project.get("name", ""))) in names
    return _number(project.get("version", "")) if mine else ""
