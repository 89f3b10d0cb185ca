"""Adapt a boundary's description to a release: choose paths that exist and parameters that functions have."""

import inspect
from collections.abc import Iterator
from dataclasses import replace

from rl_sentinel.adapters.kit.value_codecs import Spread
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.errors import Absent, Unbindable


def bindable(target: Target, *described: Boundary, optional: bool = False) -> Iterator[Boundary | Unbound]:
    """Each description as this target has it, or why it cannot be bound; equal reasons are given once.

    With ``optional``, functions that a release never had are left out; one that exists and cannot be used is reported.
    """
    reported: set[Unbound] = set()
    for boundary in described:
        try:
            yield fitted(target, boundary)
            continue
        except Absent as why:
            if optional:
                continue
            unbound = Unbound(boundary.path, boundary.stage, str(why))
        except Unbindable as why:
            unbound = Unbound(boundary.path, boundary.stage, str(why))
        if unbound not in reported:
            reported.add(unbound)
            yield unbound


def fitted(target: Target, boundary: Boundary) -> Boundary:
    """The description with the arguments that this release's functions take.

    Raises:
        Unbindable: if a function is absent, or has a parameter without a default for which there is no argument.
    """
    path, twins = _route(target, boundary.path), tuple(_route(target, twin) for twin in boundary.twins)
    steps = tuple(_fitted(target, _located(target, step)) for step in boundary.steps)
    unchanged = all(one is other for one, other in zip(steps, boundary.steps, strict=True))
    same = unchanged and (path, twins) == (boundary.path, boundary.twins)
    return boundary if same else replace(boundary, steps=steps, path=path, twins=twins)


def _route(target: Target, path: str) -> str:
    """A path, or a route of several, as this release's layout has it.

    Raises:
        Absent: if a part begins with a package that the target does not have.
    """
    parts = [target.located(part) for part in path.split(" -> ")]
    for part in parts:
        if target.package and not target.holds(part):
            raise Absent(f"{part} is absent: the target has no such package")
    return " -> ".join(parts)


def _located(target: Target, step: Step) -> Step:
    """The step with its dotted paths as this release has them."""
    call = target.located(step.call) if isinstance(step.call, str) and step.call.count(".") > 1 else step.call
    inside = {name: target.located(path) for name, path in step.inside.items()}
    doubles = {target.located(path): double for path, double in step.doubles.items()}
    same = (call, inside, doubles) == (step.call, step.inside, step.doubles)
    return step if same else replace(step, call=call, inside=inside, doubles=doubles)


def _fitted(target: Target, step: Step) -> Step:
    if not isinstance(step.call, str) or not target.holds(step.call):
        return step
    function = target.find(step.call)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return step
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    lacking = (
        []
        if any(isinstance(codec, Spread) for codec in step.arguments.values())
        else [
            name
            for name, p in parameters.items()
            if p.default is p.empty
            and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
            and name not in step.arguments
            and not any(key.isdigit() for key in step.arguments)
        ]
    )
    if lacking:
        raise Unbindable(f"{step.call} takes {lacking[0]!r}, for which the adapter has no argument")
    known = {n: c for n, c in step.arguments.items() if n in parameters or open_ended or n.isdigit()}
    spread = {name for name, codec in step.arguments.items() if isinstance(codec, Spread)}
    if spread:
        return step
    unknown = set(step.arguments) - set(known) - step.optional
    if unknown:
        raise Unbindable(f"{step.call} takes no {min(unknown)!r}, which the adapter passes")
    return step if len(known) == len(step.arguments) else replace(step, arguments=known)
