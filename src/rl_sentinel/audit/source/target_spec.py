"""Parse target names such as ``verl==0.9.1`` and find their framework."""

import re
from dataclasses import dataclass
from typing import Literal

from packaging.version import InvalidVersion, Version

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.audit.engine.worker import frameworks
from rl_sentinel.core.errors import SentinelError

Form = Literal["release", "installed", "checkout", "function"]

_RELEASE = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>.*)$")
_RANGE = re.compile(r"^(?P<name>[\w.-]+?)\s*(?:[<>~!]=?|===|=(?!=)).*$")
_CHECKOUT = re.compile(r"^(?P<name>[\w.-]+)@(?P<path>[^#]+)(?:#(?P<revision>[\w./~^@{}-]+))?$")
_FUNCTION = re.compile(r"^(?:[A-Za-z_][\w.]*|[^:#@]+\.py):[A-Za-z_][\w.]*$")


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A parsed target name; a field that its form does not have is empty.

    Attributes:
        text: the name as the user wrote it.
        form: whether the target is a release, an installed package, a checkout or one function.
        framework: the target's framework; for a function, the one with the name ``own``.
        version: the version of a release.
        path: the folder of a checkout.
        revision: the git revision of a checkout; empty for the files as they are.
        function: the name of a function, ``pkg.module:function`` or ``FILE.py:function``.
    """

    text: str
    form: Form
    framework: Framework
    version: str = ""
    path: str = ""
    revision: str = ""
    function: str = ""


def parse_target(text: str) -> TargetSpec:
    """Parse a target name.

    Forms: ``verl==0.9.1``, ``verl``, ``slime@PATH``, ``slime@PATH#REV``, ``pkg.module:function``,
    ``FILE.py:function``, ``rl_sentinel``.

    Raises:
        SentinelError: if the text has none of these forms, or names no known framework.
    """
    if match := _RELEASE.match(text):
        framework = _framework(match["name"], text)
        return TargetSpec(text, "release", framework, version=_version(match["version"], text))
    if match := _RANGE.match(text):
        framework = _framework(match["name"], text)
        message = f"target is {text!r}, expected one release, as in {framework.name}==1.2.3"
        raise SentinelError(message)
    if match := _CHECKOUT.match(text):
        framework = _framework(match["name"], text)
        return TargetSpec(text, "checkout", framework, path=match["path"], revision=match["revision"] or "")
    if _FUNCTION.match(text):
        return TargetSpec(text, "function", frameworks()["own"], function=text)
    return TargetSpec(text, "installed", _framework(text, text))


def _version(version: str, text: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion as error:
        name = text.partition("==")[0]
        raise SentinelError(f"target is {text!r}, expected a release number, as in {name}==1.2.3") from error


def _framework(name: str, text: str) -> Framework:
    by_name = {known: framework for known, framework in frameworks().items() if known != "own"}
    key = name.lower().replace("-", "_")
    if key in by_name:
        return by_name[key]
    names = ", ".join(sorted(by_name))
    message = (
        f"target is {text!r}, expected one of {names} with ==VERSION or @PATH, or pkg.module:function or "
        f"FILE.py:function with --stage: {name!r} is not a known framework"
    )
    raise SentinelError(message)
