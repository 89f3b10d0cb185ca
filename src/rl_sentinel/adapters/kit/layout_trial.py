"""Find tensor axes that are not stated: call a user's function on a small batch until it accepts the layout."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.bind_text import codec_of
from rl_sentinel.adapters.kit.codecs import CumulativeLengths
from rl_sentinel.adapters.kit.containers import Container
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.function_arguments import Arguments
from rl_sentinel.adapters.kit.refused_layouts import codec_paths
from rl_sentinel.adapters.kit.row_table import RowTable, listed
from rl_sentinel.adapters.kit.user_arguments import probe_batch
from rl_sentinel.adapters.kit.wrapped_forms import Array
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import COLUMNS, Batch, lazily
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.search.claimed_formulas import references

#: Column -> other bindings to try if the axes of its parameter are not stated, the most common first.
ALTERNATIVES: Mapping[str, tuple[str, ...]] = {
    "reward": ("token_rewards", "reward[GK]", "reward[list]", "reward[B1]", "reward[tensors]"),
    "reward[ragged]": ("reward[G ragged]", "reward[list]"),
    "reward[lists]": ("reward[G lists]",),
    "token_rewards": ("reward[B]", "reward[GK]"),
    "advantage": ("advantage[B]", "advantage[GK]"),
    "mask": ("mask int64", "mask float"),
    "group": ("group[list]",),
    "reward_baseline": ("reward_baseline[B1]",),
    "logits": ("logits_of_sequence",),
    "token": ("token_of_sequence",),
    "lengths": ("width",),
}

#: Layouts that are tried for all per-token columns at once.
_LAYOUTS = ("N", "ragged")

#: Columns per token.
PER_TOKEN = frozenset(
    {"mask", "advantage", "value", "old_value", "returns", "logprob", "old_logprob", "ref_logprob", "rollout_logprob"}
)

#: Per-token bindings, which share one layout; rewards are per token only if the parameter's name says so.
_OF_TOKENS = PER_TOKEN | {"token_rewards"}

#: Maximum number of bindings that are tried.
MOST = 160

#: Gradients differ if their difference is above this.
_NEAR = 1e-6


def all_codecs(codecs: Iterable[Codec]) -> Iterator[Codec]:
    """All codecs, including those inside containers."""
    for codec in codecs:
        yield codec
        if isinstance(codec, Container):
            yield from all_codecs(codec.parts.values())


def change_codecs(codecs: Mapping[str, Codec], change: Callable[[Codec], Codec]) -> dict[str, Codec]:
    """The codecs, each changed by a function, including codecs inside containers."""
    return {
        name: replace(codec, parts=change_codecs(codec.parts, change))  # type: ignore[type-var]  # as in rebind
        if isinstance(codec, Container)
        else change(codec)
        for name, codec in codecs.items()
    }


def choose_binding(
    target: Target, build: Callable[[Mapping[str, Codec]], Boundary], arguments: Arguments
) -> tuple[Boundary, tuple[str, ...]]:
    """Return the boundary with the first binding that the function accepts, and notes on the changed bindings.

    The usual binding is tried first, unless another argument shows that tokens are packed or in a list. A loss that
    expects an advantage ``[B]`` may broadcast ``[B, T]`` across rows; a binding without that effect is preferred. If no
    binding is accepted, the usual one is returned. ``Unbindable`` is raised if accepted axes contradict a docstring.
    """
    usual = build(arguments.codecs)
    if not arguments.open_axes:
        return usual, ()
    packed = any(isinstance(codec, CumulativeLengths) for codec in all_codecs(arguments.codecs.values()))
    packed = (packed or _has_ragged(arguments)) and any(column in _OF_TOKENS for column in arguments.open_axes.values())
    accepted = not packed and accepts(target, usual)
    if accepted and not mixes_rows(target, usual) and not _may_be_shifted(target, usual):
        return usual, ()
    for changed in sorted(changes(arguments, usual), key=lambda one: bool(_overruled(arguments, one))):
        boundary = build(rebind(arguments.codecs, changed))
        if not accepts(target, boundary) or (accepted and _may_be_shifted(target, boundary)):
            continue
        if not (accepted and mixes_rows(target, boundary)):
            require_documented(arguments, changed, "accepts")
            usual_codecs = dict(codec_paths(arguments.codecs))
            other = {path: text for path, text in changed.items() if usual_codecs.get(path) != codec_of(text)}
            return boundary, tuple(_note(path, text, mixed=accepted) for path, text in other.items())
    return usual, ()


def _has_ragged(arguments: Arguments) -> bool:
    """Whether an argument is stated as a list with one tensor or list per response."""
    return any(type(getattr(codec, "form", None)) is Ragged for codec in all_codecs(arguments.codecs.values()))


def _overruled(arguments: Arguments, changed: Mapping[str, str]) -> list[str]:
    """The parameters whose new axes differ from their docstring."""
    stated = {p: codec for p, codec in codec_paths(arguments.codecs) if p in arguments.documented & changed.keys()}
    return [path for path, codec in stated.items() if codec != codec_of(changed[path])]


def require_documented(arguments: Arguments, changed: Mapping[str, str], does: str) -> None:
    """Raise an error if a change contradicts axes in a docstring; ``does`` is what the function does with new axes.

    Raises:
        Unbindable: names the first parameter whose documented axes are changed.
    """
    for path in _overruled(arguments, changed):
        text = _with_axes(changed[path])
        raise Unbindable(
            f"the function {does} {path} as {text} and not with the axes in its docstring: state which axes are right, "
            f'as in bind={{"{path}": "{text}"}}, or correct the docstring'
        )


def _with_axes(text: str) -> str:
    """A binding with its axes, even if they are the usual axes of the column."""
    if "[" in text:
        return text
    name, space, dtype = text.partition(" ")
    of_rows = name in COLUMNS and COLUMNS[name]["axes"] == "B"
    return f"{name}{'[B]' if of_rows else '[B T]'}{space}{dtype}"


def _note(path: str, text: str, *, mixed: bool) -> str:
    bind = f'bind={{"{path}": "{text}"}}'
    if mixed and "_of_sequence" not in text:
        return (
            f"{path} seems to be one number per response: as [B, T] it broadcasts across rows, so it was passed as "
            f"{text}; state it with {bind}"
        )
    return f"{path} was passed as {text}, which the function accepts; state it with {bind}"


def _options(arguments: Arguments, usual: Boundary) -> dict[str, tuple[str, ...]]:
    """Path -> other bindings to try for a parameter with open axes.

    For a group statistic without prompt ids, ``[G, K]`` is tried first.
    """
    options = {path: ALTERNATIVES.get(column, ()) for path, column in arguments.open_axes.items()}
    if value_of(usual.claims.scope) == "group" and "group" not in usual.reads:
        options = {path: tuple(sorted(texts, key=lambda t: not t.endswith("[GK]"))) for path, texts in options.items()}
    return {
        path: (arguments.open_axes[path], *texts) if path in arguments.documented else texts
        for path, texts in options.items()
    }


def changes(arguments: Arguments, usual: Boundary) -> Iterator[dict[str, str]]:
    """At most ``MOST`` other bindings: the fewest changes first, and other layouts of all per-token columns."""
    options = _options(arguments, usual)
    count = 0
    tokens = [path for path, column in arguments.open_axes.items() if column in _OF_TOKENS]
    layouts = ["", *(_LAYOUTS if tokens else ())]
    if _has_ragged(arguments):
        layouts = [*layouts[2:], *layouts[:1], *layouts[1:2]]
    elif any("length" in codec.shapes and not codec.columns for codec in arguments.codecs.values()):
        layouts = [*layouts[1:2], *layouts[:1], *layouts[2:]]
    for layout in layouts:
        alike = {path: f"{arguments.open_axes[path]}[{layout}]" for path in tokens if layout}
        for size in range(len(options) + 1):
            for chosen in combinations(options, size):
                for texts in product(*(options[path] for path in chosen)):
                    change = {**alike, **dict(zip(chosen, texts, strict=True))}
                    if layout:
                        change |= {path: _in_layout(change[path], alike.get(path, ""), layout) for path in chosen}
                    if change:
                        yield change
                        count += 1
                    if count >= MOST:
                        return


def _in_layout(text: str, usual: str, layout: str) -> str:
    """A binding in a layout.

    A change of the dtype, or to token rewards, is combined with the layout; any other change replaces the layout.
    """
    if text == "token_rewards":
        return f"{text}[{layout}]"
    column, _, dtype = text.partition(" ")
    return f"{usual} {dtype}" if dtype and "[" not in column and usual else text


def rebind(codecs: Mapping[str, Codec], changed: Mapping[str, str], prefix: str = "") -> dict[str, Codec]:
    """The codecs, with new bindings for some parameters."""
    rebound: dict[str, Codec] = {}
    for name, codec in codecs.items():
        path = f"{prefix}{name}"
        if path in changed:
            array = isinstance(getattr(codec, "form", None), Array)
            rebound[name] = codec_of(changed[path], array=array)
        elif isinstance(codec, RowTable) and any(key.startswith(f"{path}.") for key in changed):
            parts = rebind(codec.parts, changed, f"{path}.")
            rebound[name] = replace(codec, parts={key: listed(part) for key, part in parts.items()})
        elif isinstance(codec, Container) and any(key.startswith(f"{path}.") for key in changed):
            rebound[name] = replace(codec, parts=rebind(codec.parts, changed, f"{path}."))  # type: ignore[type-var]
        else:
            rebound[name] = codec
    return rebound


def outputs_on(target: Target, boundary: Boundary, batch: Batch) -> dict[str, Tensor]:
    """The outputs of a boundary for a batch."""
    case = Case(batch)
    return execute(target, boundary, inputs_of(boundary, case, batch), references=False).values


def accepts(target: Target, boundary: Boundary) -> bool:
    """Whether the function runs with these arguments and returns an output in the shape of its stage."""
    batch = domain_probe(boundary)
    try:
        values = outputs_on(target, boundary, batch)
    except Exception:  # noqa: BLE001 - any exception means that the binding is not accepted
        return False
    sizes = {"B": batch.rows, "T": batch.width}
    return all(
        isinstance(value, Tensor) and list(value.shape) == [sizes[a] for a in boundary.outputs[name].axes.split()]
        for name, value in values.items()
    )


def domain_probe(boundary: Boundary) -> Batch:
    """The probe batch, within the domain of a boundary."""
    return probe_batch() if boundary.domain is None else boundary.domain(probe_batch())


def _may_be_shifted(target: Target, boundary: Boundary) -> bool:
    """Whether a function of logits differs from its definition; it may then expect tokens shifted by one position."""
    return boundary.stage == "batch" and not _matches_definition(target, boundary)


def _matches_definition(target: Target, boundary: Boundary) -> bool:
    """Whether each output has the values of its definition on a small batch."""
    batch, settings = domain_probe(boundary), next(iter(boundary.settings.values()))
    try:
        values = outputs_on(target, boundary, batch)
        expected = {name: references(boundary, name, batch, settings) for name in values}
    except Exception:  # noqa: BLE001 - a function that fails here is judged by the laws
        return False
    return all(
        any(
            torch.allclose(value[batch.mask].double(), x[batch.mask].double(), atol=1e-4)
            for x in expected[name].values()
        )
        for name, value in values.items()
    )


def has_gradient(target: Target, boundary: Boundary) -> bool:
    """Whether the output of a function of logits has a gradient to the logits; an old policy needs no gradient."""
    copy = lazily(domain_probe(boundary), torch.clone)
    copy.logits.requires_grad_(True)  # noqa: FBT003 - torch's own signature
    try:
        values = outputs_on(target, boundary, copy)
    except Exception:  # noqa: BLE001 - a function that fails here is judged by the laws
        return False
    return all(value.requires_grad for value in values.values())


def mixes_rows(target: Target, boundary: Boundary) -> bool:
    """Whether the advantage of one row changes the gradient with respect to the log-probs of another row."""
    if boundary.stage != "policy-loss" or not {"advantage", "logprob"} <= boundary.reads:
        return False
    batch = domain_probe(boundary)
    higher = batch.advantage.clone()
    higher[0] += 1.0
    try:
        one, two = (logprob_gradient(target, boundary, batch, x) for x in (batch.advantage, higher))
    except Exception:  # noqa: BLE001 - a loss without a gradient is judged by the laws
        return False
    return bool(((one - two)[1:].abs() > _NEAR).any())


def logprob_gradient(target: Target, boundary: Boundary, batch: Batch, advantage: Tensor) -> Tensor:
    """The gradient of a loss with respect to the log-probs, with these advantages."""
    copy = lazily(batch, torch.clone)
    copy.logprob.requires_grad_(True)  # noqa: FBT003 - torch's own signature
    values: dict[str, Any] = outputs_on(target, boundary, replace(copy, advantage=advantage, logprob=copy.logprob))
    gradient: Tensor = torch.autograd.grad(values["loss"].sum(), copy.logprob)[0]
    return gradient
