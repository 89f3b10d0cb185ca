"""List the releases of a framework from the package index or from version tags of a git folder, oldest first."""

from pathlib import Path

from packaging.version import InvalidVersion, Version

from rl_sentinel.audit.source.fetch import pip, pip_failure
from rl_sentinel.audit.source.git_revision import git
from rl_sentinel.audit.source.target_spec import TargetSpec
from rl_sentinel.core.errors import SentinelError

#: Text before the list of versions in pip's output.
_LISTED = "Available versions:"


def target_of(target: TargetSpec, release: str) -> str:
    """The ``audit`` target of a release; ``target`` is a framework, or a git folder of a framework.

    Example:
        >>> from rl_sentinel.audit.source.releases import target_of
        >>> from rl_sentinel.audit.source.target_spec import parse_target
        >>> target_of(parse_target("verl"), "0.9.1"), target_of(parse_target("slime@PATH"), "v0.2.0")
        ('verl==0.9.1', 'slime@PATH#v0.2.0')
    """
    if target.form == "checkout":
        return f"{target.framework.name}@{target.path}#{release}"
    return f"{target.framework.name}=={release}"


def releases(target: TargetSpec) -> list[str]:
    """All releases, oldest first.

    Raises:
        SentinelError: if the target is neither a framework nor a git folder, or has no release.
    """
    if target.form == "checkout" and not target.revision:
        return _tags(target)
    if target.form != "installed" or not target.framework.distribution:
        name = "FRAMEWORK" if target.form == "function" else target.framework.name
        indexed = f"{name}, or " if target.framework.distribution or target.form == "function" else ""
        raise SentinelError(f"target is {target.text!r}, expected {indexed}{name}@FOLDER with version tags")
    return _published(target.framework.distribution)


def _published(name: str) -> list[str]:
    run = pip("index", "versions", name)
    listed = next((line for line in run.stdout.splitlines() if line.startswith(_LISTED)), "")
    versions = [v.strip() for v in listed.removeprefix(_LISTED).split(",") if v.strip()]
    if not versions:
        reason = pip_failure(run.stderr)
        raise SentinelError(f"releases of {name} cannot be listed by pip ({reason}): pass them as --releases A,B,C")
    return sorted(versions, key=Version)


def _tags(target: TargetSpec) -> list[str]:
    folder = Path(target.path).expanduser()
    if not folder.is_dir():
        raise SentinelError(f"checkout is {target.path!r}, expected a folder with a git history")
    tags = {tag: _number(tag) for tag in git(folder, "tag", "--list").decode(errors="replace").split()}
    numbered = sorted((number, tag) for tag, number in tags.items() if number is not None)
    if not numbered:
        raise SentinelError(
            f"{target.path} has no version tag, expected a tag such as v1.2.3: pass revisions as --releases A,B,C"
        )
    return [tag for _, tag in numbered]


def _number(tag: str) -> Version | None:
    try:
        return Version(tag)
    except InvalidVersion:
        return None
