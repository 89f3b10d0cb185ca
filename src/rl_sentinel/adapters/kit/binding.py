"""Adapt a boundary to a release: locate its functions, and drop arguments that their signatures do not have."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rl_sentinel.adapters.kit.value_codecs import Spread
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Stage, Step, Unbound
from rl_sentinel.core.errors import Absent, Unbindable


def bindable(target: Target, *boundaries: Boundary, optional: bool = False) -> Iterator[Boundary | Unbound]:
    """Adapt each boundary to this target, or yield ``Unbound`` with the reason; equal ``Unbound`` are yielded once.

    With ``optional``, a function that does not exist is skipped; a function that exists and cannot be used is reported.
    """
    reported: set[Unbound] = set()
    for boundary in boundaries:
        try:
            yield fit_to_release(target, boundary)
            continue
        except Unbindable as why:
            if optional and isinstance(why, Absent):
                continue
            unbound = Unbound.because(boundary.path, boundary.stage, why)
        if unbound not in reported:
            reported.add(unbound)
            yield unbound


def try_bind(
    target: Target, path: str, stage: Stage, make: Callable[[], Iterable[Boundary]], *, required: bool = False
) -> Iterator[Boundary | Unbound]:
    """Yield the boundaries of a function, or ``Unbound`` with the reason if it cannot be used.

    Unless ``required``, nothing is yielded if the function, or a name that ``make`` looks up, does not exist.
    """
    try:
        target.find(path)
        yield from bindable(target, *make())
    except Unbindable as why:
        if required or not isinstance(why, Absent):
            yield Unbound.because(path, stage, why)


def fit_to_release(target: Target, boundary: Boundary) -> Boundary:
    """Adapt a boundary to the paths and parameters of this release.

    Raises:
        Absent: if the target does not have the package of a path, or the module or the name of a function to call.
        Unbindable: if a required parameter has no argument, or an argument that is not optional has no parameter.
    """
    path = _locate_route(target, boundary.path)
    alternatives = tuple(_locate_route(target, other) for other in boundary.alternatives)
    steps = tuple(_match_parameters(target, _locate_step(target, step)) for step in boundary.steps)
    unchanged = all(one is other for one, other in zip(steps, boundary.steps, strict=True))
    same = unchanged and (path, alternatives) == (boundary.path, boundary.alternatives)
    return boundary if same else replace(boundary, steps=steps, path=path, alternatives=alternatives)


def _locate_route(target: Target, path: str) -> str:
    """A path, or several paths joined by ``->``, in the layout of this release.

    Raises:
        Absent: if the target does not have the package of a path.
    """
    parts = [target.locate(part) for part in path.split(" -> ")]
    for part in parts:
        if target.package and not target.contains(part):
            raise Absent(f"{part} is absent: the target has no such package")
    return " -> ".join(parts)


def _locate_step(target: Target, step: Step) -> Step:
    call = target.locate(step.call) if isinstance(step.call, str) and step.call.count(".") > 1 else step.call
    inside = {name: target.locate(path) for name, path in step.inside.items()}
    fakes = {target.locate(path): fake for path, fake in step.fakes.items()}
    same = (call, inside, fakes) == (step.call, step.inside, step.fakes)
    return step if same else replace(step, call=call, inside=inside, fakes=fakes)


def _match_parameters(target: Target, step: Step) -> Step:
    if not isinstance(step.call, str) or not target.contains(step.call):
        return step
    function = target.find(step.call)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return step
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    uncovered = (
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
    if uncovered:
        raise Unbindable(f"{step.call} requires {uncovered[0]!r}, for which the adapter has no argument")
    known = {n: c for n, c in step.arguments.items() if n in parameters or open_ended or n.isdigit()}
    spread = {name for name, codec in step.arguments.items() if isinstance(codec, Spread)}
    if spread:
        return step
    unknown = set(step.arguments) - set(known) - step.optional
    if unknown:
        raise Unbindable(f"{step.call} has no parameter {min(unknown)!r}, which the adapter passes")
    return step if len(known) == len(step.arguments) else replace(step, arguments=known)


def present(target: Target, fakes: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The fakes whose names exist in this release."""
    return {path: fake for path, fake in fakes.items() if target.has(path)}
