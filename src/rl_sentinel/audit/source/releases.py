"""List the releases of a framework from the package index or from version tags of a git folder, oldest first."""

from pathlib import Path

from packaging.version import InvalidVersion, Version

from rl_sentinel.audit.source.fetch import pip
from rl_sentinel.audit.source.git_revision import git
from rl_sentinel.audit.source.target_spec import Named
from rl_sentinel.core.errors import SentinelError

#: Text before the list of versions in pip's output.
_LISTED = "Available versions:"


def target_of(named: Named, release: str) -> str:
    """The ``audit`` target of a release; ``named`` is a framework or a git folder of it.

    Example:
        >>> from rl_sentinel.audit.source.releases import target_of
        >>> from rl_sentinel.audit.source.target_spec import named
        >>> target_of(named("verl"), "0.9.1"), target_of(named("slime@PATH"), "v0.2.0")
        ('verl==0.9.1', 'slime@PATH#v0.2.0')
    """
    if named.form == "checkout":
        return f"{named.framework.name}@{named.path}#{release}"
    return f"{named.framework.name}=={release}"


def releases(named: Named) -> list[str]:
    """All releases, oldest first.

    Raises:
        SentinelError: if the target is neither a framework nor a git folder, or has no release.
    """
    if named.form == "checkout" and not named.revision:
        return _tags(named)
    if named.form != "installed" or not named.framework.distribution:
        name = named.framework.name
        raise SentinelError(f"target is {named.text!r}, expected {name}@FOLDER, or a framework on the package index")
    return _published(named.framework.distribution)


def _published(name: str) -> list[str]:
    run = pip("index", "versions", name)
    listed = next((line for line in run.stdout.splitlines() if line.startswith(_LISTED)), "")
    versions = [v.strip() for v in listed.removeprefix(_LISTED).split(",") if v.strip()]
    if not versions:
        raise SentinelError(f"releases of {name} are not listed by the package index: list them with --releases")
    return sorted(versions, key=Version)


def _tags(named: Named) -> list[str]:
    folder = Path(named.path).expanduser()
    if not folder.is_dir():
        raise SentinelError(f"checkout is {named.path!r}, expected a folder with a git history")
    tags = {tag: _number(tag) for tag in git(folder, "tag", "--list").decode(errors="replace").split()}
    numbered = sorted((number, tag) for tag, number in tags.items() if number is not None)
    if not numbered:
        raise SentinelError(f"{named.path} has no version tag, expected one such as v1.2.3: use --releases")
    return [tag for _, tag in numbered]


def _number(tag: str) -> Version | None:
    try:
        return Version(tag)
    except InvalidVersion:
        return None
