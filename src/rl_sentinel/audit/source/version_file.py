"""Read the version that a source tree states, without running its code."""

import re
import tomllib
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

#: Files of a package that hold only its version, in order of priority.
_VERSION_FILES = ("VERSION", "version.txt")

#: Modules of a package that may assign the version as a string.
_MODULES = ("version.py", "_version.py", "__version__.py", "__about__.py", "__init__.py")

#: The numbers of a release, and a suffix that no version has.
_MISSPELLED = re.compile(r"(\d+(?:\.\d+)+)[.+-]?\w+")

_ASSIGNED = re.compile(r"""^(?:__version__|version|VERSION)\s*(?::\s*str\s*)?=\s*["']([^"'\n]+)["']""", re.MULTILINE)


def stated_version(root: Path, package: str, distribution: str, version_file: str = "") -> str:
    """The version that a checkout states; may be empty.

    Args:
        root: the folder that holds the import package.
        package: the import package's name.
        distribution: the name of the project on the package index, or empty if the index does not have it.
        version_file: the version file named by the adapter, relative to the package.

    Returns:
        A normalized version, such as ``"0.9.1"``. Read in this order: files of the package, ``*.dist-info`` beside it,
        then ``pyproject.toml`` and ``VERSION`` beside it (or above a ``src`` folder).

    Example:
        >>> from pathlib import Path
        >>> from rl_sentinel.audit.source.version_file import stated_version
        >>> stated_version(Path("/nonesuch"), "verl", "verl")
        ''
    """
    home = root / package
    names: set[str] = {canonicalize_name(n) for n in (package, distribution) if n}
    files = [_line(home / name) for name in ([version_file] if version_file else []) + list(_VERSION_FILES)]
    files += [_assigned(home / name) for name in _MODULES]
    beside = [_metadata(p, names) for p in sorted(root.glob("*.dist-info"))]
    above = [root, root.parent] if root.name == "src" else [root]
    of_project = [
        version for p in above for version in (_stated_in_project(p, names), _stated_beside_project(p, names))
    ]
    return next(filter(None, (*files, *beside, *of_project)), "")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _number(text: object) -> str:
    """The normalized version; of a misspelled one such as ``1.2.devO``, the numbers of the release."""
    stated = str(text).strip()
    try:
        return str(Version(stated))
    except InvalidVersion:
        release = _MISSPELLED.fullmatch(stated)
        return release[1] if release else ""


def _line(file: Path) -> str:
    return _assigned(file) if file.suffix == ".py" else _number(_text(file))


def _assigned(file: Path) -> str:
    match = _ASSIGNED.search(_text(file))
    return _number(match[1]) if match else ""


def _metadata(folder: Path, names: set[str]) -> str:
    head = HeaderParser().parsestr(_text(folder / "METADATA"))
    return _number(head["Version"]) if canonicalize_name(head["Name"] or "") in names else ""


def _stated_beside_project(folder: Path, names: set[str]) -> str:
    """The version in ``VERSION``, if the project file beside it has the name, or if ``setup.py`` replaces that file."""
    project = _project_table(folder)
    legacy = project == {} and (folder / "setup.py").is_file()
    return _line(folder / "VERSION") if legacy or _is_named(project, names) else ""


def _stated_in_project(folder: Path, names: set[str]) -> str:
    project = _project_table(folder)
    return _number(project["version"]) if _is_named(project, names) and "version" in project else ""


def _project_table(folder: Path) -> Any:  # noqa: ANN401 - TOML
    try:
        return tomllib.loads(_text(folder / "pyproject.toml")).get("project", {})
    except tomllib.TOMLDecodeError:
        return None


def _is_named(project: Any, names: set[str]) -> bool:  # noqa: ANN401 - TOML
    return isinstance(project, dict) and canonicalize_name(str(project.get("name", ""))) in names
