"""Provide the code of a target as a folder: unpack a wheel, use a folder, or check out a git revision."""

import importlib.util
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rl_sentinel.audit.source.cache import cached_folder, digest_of
from rl_sentinel.audit.source.git_revision import commit_of, write_out
from rl_sentinel.audit.source.interpreter import check_interpreter, query
from rl_sentinel.audit.source.project_table import project_file
from rl_sentinel.audit.source.target_spec import TargetSpec
from rl_sentinel.audit.source.version_file import stated_version
from rl_sentinel.core.errors import SentinelError


@dataclass(frozen=True, slots=True)
class Source:
    """A target's tree on disk: ``root`` is the folder that holds the import package.

    An attribute that the form of the target does not have is empty.

    Attributes:
        root: the folder.
        version: the requested or installed release.
        digest: SHA-256 of the files.
        commit: the hash of a git revision.
        stated_version: the version that a checkout states.
        function: a user's function as ``module:name``, importable from ``root``.
    """

    root: Path
    version: str
    digest: str
    commit: str = ""
    stated_version: str = ""
    function: str = ""

    @property
    def known_version(self) -> str:
        """The release, or the version that the source tree states; empty if neither is known."""
        return self.version or self.stated_version


def source(target: TargetSpec, python: str = sys.executable) -> Source:
    """The tree of a target on disk; a release or a git revision is fetched, unless the cache has it.

    Raises:
        SentinelError: if the release, folder, revision or installation does not exist.
    """
    if target.form == "release":
        return _release(target)
    if target.form == "checkout":
        return _checkout(target)
    if target.form == "function":
        return _function(target)
    return _installed(target, python)


def _release(target: TargetSpec) -> Source:
    name = target.framework.distribution
    if not name:
        example = f"{target.framework.name}@PATH"
        reason = f"{target.framework.name} has no release on the package index"
        message = f"target is {target.text!r}, expected a checkout ({example}): {reason}"
        raise SentinelError(message)
    folder = cached_folder("releases", f"{name}-{target.version}", lambda to: _fetch(name, target.version, to))
    return Source(folder, target.version, digest_of(folder))


def _fetch(name: str, version: str, to: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        run = pip("download", "--no-deps", "--only-binary=:all:", "-d", scratch, f"{name}=={version}")
        wheels = list(Path(scratch).glob("*.whl"))
        if run.returncode or not wheels:
            raise SentinelError(_failure_reason(name, version, run.stdout + run.stderr))
        unpack(wheels[0], to)


#: Releases that a message lists.
_SHOWN = 10

#: Messages of pip if it cannot reach the package index.
_UNREACHED = re.compile(
    r"connection broken|Max retries|Failed to establish|NameResolution|timed out|ProxyError|SSLError|"
    r"Could not fetch URL|is not a trusted or secure host|Temporary failure",
    re.IGNORECASE,
)


#: pip's list of versions that it left out because they need another Python: the version and what it needs.
_OTHER_PYTHON = re.compile(r"(\S+) Requires-Python ([^;\n]+)")


def _failure_reason(name: str, version: str, output: str) -> str:
    needed = dict(_OTHER_PYTHON.findall(output)).get(version)
    if needed:
        python = ".".join(map(str, sys.version_info[:2]))
        fix = f"use such a Python, or name a checkout ({name}@PATH)"
        return f"{name}=={version} needs Python {needed.strip()}, and this is Python {python}: {fix}"
    versions = output.partition("from versions:")[2].partition(")")[0].strip()
    if versions and versions != "none":
        newest = versions.split(", ")[-_SHOWN:]
        others = ", or an older release" if len(newest) < len(versions.split(", ")) else ""
        return f"{name}=={version} has no wheel on the package index, expected one of {', '.join(newest)}{others}"
    fix = f"connect to the index, or name a checkout ({name}@PATH)"
    if _UNREACHED.search(output):
        return f"{name}=={version} is not in the cache and the package index cannot be reached: {fix}"
    if versions:
        return f"{name}=={version} is not in the cache, and pip's package index has no {name}: {fix}"
    return f"{name}=={version} is not in the cache and cannot be fetched ({pip_failure(output)}): {fix}"


def pip_failure(output: str) -> str:
    """Why pip failed: the index cannot be reached, or the last line that it printed."""
    if _UNREACHED.search(output):
        return "the package index cannot be reached"
    last = [line for line in output.strip().splitlines() if line][-1:] or ["no answer"]
    return last[0][:160]


def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the pip of this environment and capture its output."""
    base = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--retries", "2"]
    return subprocess.run([*base, *arguments], capture_output=True, text=True, check=False)  # noqa: S603 - fixed program


def unpack(wheel: Path, to: Path) -> None:
    """Unpack a wheel; code under ``*.data/purelib`` and ``platlib`` is moved as an installer does, other data left out.

    Raises:
        SentinelError: if the archive is damaged or a name points out of the folder.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                parts = PurePosixPath(info.filename).parts
                if info.is_dir() or not parts:
                    continue
                if parts[0].endswith(".data"):
                    if len(parts) < 3 or parts[1] not in ("purelib", "platlib"):
                        continue
                    parts = parts[2:]
                if ".." in parts or info.filename.startswith(("/", "\\")):
                    message = f"wheel[{wheel.name}] contains {info.filename!r}, expected paths inside of the wheel"
                    raise SentinelError(message)
                place = to.joinpath(*parts)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(info))
    except zipfile.BadZipFile as error:
        message = f"wheel[{wheel.name}] is damaged ({error}), expected a zip archive: run the command again"
        raise SentinelError(message) from error


def _checkout(target: TargetSpec) -> Source:
    folder = Path(target.path).expanduser()
    if not folder.is_dir():
        message = f"checkout is {target.path!r}, expected a folder that contains {target.framework.package}/"
        raise SentinelError(message)
    if target.revision:
        return _revision(target, folder)
    root = _root(folder, target)
    return Source(root, "", digest_of(root / target.framework.package_of(root)), "", _stated_version(root, target))


def _stated_version(root: Path, target: TargetSpec) -> str:
    framework = target.framework
    return stated_version(root, framework.package_of(root), framework.distribution, framework.version_file)


def _root(folder: Path, target: TargetSpec, label: str = "") -> Path:
    for inside, package in target.framework.places():
        if (folder / inside / package).is_dir():
            return (folder / inside).resolve()
    packages = " or ".join(f"{package}/" for package in target.framework.packages)
    message = f"checkout[{label or folder}] has no {packages}, expected a checkout of {target.framework.name}"
    raise SentinelError(message)


def _revision(target: TargetSpec, folder: Path) -> Source:
    commit = commit_of(folder, target.revision)
    label = f"{target.path}#{target.revision}"

    def write(to: Path) -> None:
        write_out(
            folder, commit, [f"{inside}/{package}".lstrip("/") for inside, package in target.framework.places()], to
        )
        _root(to, target, label)  # a tree without the package is not cached

    root = _root(cached_folder("revisions", f"{target.framework.name}-{commit}", write), target)
    return Source(root, "", digest_of(root / target.framework.package_of(root)), commit, _stated_version(root, target))


def _installed(target: TargetSpec, python: str) -> Source:
    package = target.framework.package
    find = (
        "import importlib.util as u, importlib.metadata as m\n"
        "s = u.find_spec(sys.argv[2])\n"
        "o = s and (s.origin or list(s.submodule_search_locations)[0])\n"
        "try: v = m.version(sys.argv[3])\n"
        "except Exception: v = ''\n"
        "answer([o, v])"
    )
    origin, version = query(check_interpreter(python), find, package, target.framework.distribution or package)
    if not origin:
        release = f"a release ({target.text}==VERSION) or " if target.framework.distribution else ""
        targets = f"{release}a checkout ({target.text}@PATH)"
        message = f"target is {target.text!r}, which is not installed for {python}: name {targets}"
        raise SentinelError(message)
    place = Path(origin)
    home = place.parent if place.name.startswith("__init__") else place
    return Source(home.parent, version, digest_of(home))


def _function(target: TargetSpec) -> Source:
    """A user's function: ``module:name`` of an importable module, or ``FILE.py:name``, here or in the project."""
    module, _, name = target.function.rpartition(":")
    project = project_file(Path.cwd())
    folders = [Path.cwd(), *([project.parent, project.parent / "src"] if project else [])]
    if module.endswith(".py"):
        return _function_of_file(target, [folder / module for folder in folders], name)
    top = module.partition(".")[0]
    before = list(sys.path)
    sys.path[:0] = map(str, folders)
    try:
        module_spec = None if top == "__main__" else importlib.util.find_spec(top)
    finally:
        sys.path[:] = before
    if module_spec is None or module_spec.origin is None:
        missing, fix = (
            f"{top!r} is not in this folder and not installed",
            f"run in the folder that contains {top}, or install {top}",
        )
        if top == "__main__":
            missing, fix = "'__main__' is the running program", "write target as FILE.py:function"
        if module_spec is not None:
            missing = f"{top!r} is a folder without __init__.py"
            fix = "add the file, or write target as FILE.py:function"
        raise SentinelError(f"target is {target.text!r}, expected a module: {missing}; {fix}")
    place = Path(module_spec.origin)
    nearest = next((folder / f"{top}.py" for folder in folders if (folder / f"{top}.py").is_file()), None)
    if nearest and nearest.resolve() != place.resolve():  # the other module is imported already
        reason = f"has the same name as a module that is imported or found before it ({place})"
        message = f"target is {target.text!r}: {nearest} {reason}; rename the file"
        raise SentinelError(message)
    if place.suffix != ".py":
        message = f"target is {target.text!r}: module {top!r} has no Python source ({place}), expected a .py file"
        raise SentinelError(message)
    root = place.parent.parent if place.name == "__init__.py" else place.parent
    return Source(root, "", "", function=target.function)


def _function_of_file(target: TargetSpec, places: Sequence[Path], name: str) -> Source:
    """A user's function in a file; parent folders with an ``__init__.py`` belong to its module name."""
    file = next((place.resolve() for place in places if place.is_file()), None)
    if file is None:
        raise SentinelError(f"target is {target.text!r}, expected an existing file: {places[0]} does not exist")
    parts, root = [file.stem], file.parent
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    if wrong := [part for part in parts if not part.isidentifier()]:
        message = f"target is {target.text!r}: {wrong[0]!r} cannot be part of a module name"
        expected = "expected letters, digits and underscores, with no digit first"
        raise SentinelError(f"{message}, {expected}: rename this file or folder")
    return Source(root, "", "", function=f"{'.'.join(parts)}:{name}")
