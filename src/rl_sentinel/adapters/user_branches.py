"""Check a function with each layout that it accepts, if its code reads the number of axes of an argument."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.layout_trial import accepts
from rl_sentinel.adapters.kit.number_trial import is_temporal
from rl_sentinel.adapters.kit.parameter_uses import axes_read
from rl_sentinel.adapters.kit.per_response import PerResponse
from rl_sentinel.adapters.kit.refused_layouts import codec_paths
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.codec import Codec

#: A function that returns the boundary with further bindings, besides those that the user states.
Describe = Callable[[Mapping[str, str]], Boundary | Unbound]


def with_branches(
    target: Target, first: Boundary | Unbound, stated: Mapping[str, Any], describe: Describe
) -> list[Boundary | Unbound]:
    """The boundary, and a further boundary for each layout that may take another branch of the code.

    If the code reads the number of axes of an argument, the further layout has another number of axes. Each layout is a
    setting of the function. A layout with which the function fails is left out with a note. Nothing is added where
    credit runs over time, because a single axis may then be a trajectory.

    Args:
        target: where the function is looked up.
        first: the boundary with the layouts that were chosen.
        stated: the bindings that the user states; the arguments in them get no other layout.
        describe: builds the boundary with further bindings.
    """
    if isinstance(first, Unbound):
        return [first]
    codecs = dict(codec_paths(first.steps[0].arguments))
    found, notes = list[Boundary](), list[str]()
    for path in axes_read(target.find(first.path)):
        text = "" if is_temporal(first) else _other_layout(codecs.get(path))
        if not text or path in stated or path.partition(".")[0] in stated:
            continue
        other = describe({path: text})
        setting = f"{path} as {text}"
        if isinstance(other, Boundary) and accepts(target, other):
            notes.append(f"the code reads the number of axes of {path}, so it is also checked with {setting}")
            found.append(replace(other, settings={setting: other.settings["default"]}, notes=()))
        else:
            bind = f'bind={{"{path}": "{text}"}}'
            notes.append(f"the code reads the number of axes of {path}, but fails with {setting}: check it with {bind}")
    return [replace(first, notes=(*first.notes, *notes)), *found]


def _other_layout(codec: Codec | None) -> str:
    """An equivalent binding with another number of axes; empty if it does not exist."""
    if type(codec) is PerResponse and codec.name == "advantage" and not (codec.dims or codec.grouped or codec.listed):
        return "advantage[B T]"
    if isinstance(codec, Column) and codec.name == "advantage" and type(codec.form) is Padded:
        return "advantage[B]"
    return "reward[B]" if isinstance(codec, TokenRewards) and type(codec.form) is Padded else ""
