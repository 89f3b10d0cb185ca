"""Find the axes that a user's function accepts by calling it on a small batch, if nothing states them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.bind_text import codec_of
from rl_sentinel.adapters.kit.containers import Container
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.kit.user_arguments import Arguments, probe_batch
from rl_sentinel.adapters.kit.user_layouts import CumulativeLengths
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, lazily
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.codec import Codec
from rl_sentinel.search.claimed_formulas import references

#: Column -> other bindings that are tried where its parameter has no stated axes, the most usual first.
ALTERNATIVES: Mapping[str, tuple[str, ...]] = {
    "reward": ("token_rewards", "reward[GK]", "reward[list]", "reward[B1]"),
    "token_rewards": ("reward[B]", "reward[GK]"),
    "advantage": ("advantage[B]", "advantage[GK]"),
    "mask": ("mask int64", "mask float"),
    "group": ("group[list]",),
    "reward_baseline": ("reward_baseline[B1]",),
    "logits": ("logits_of_sequence",),
    "token": ("token_of_sequence",),
}

#: Layouts of all tokens together, which are tried as one.
_LAYOUTS = ("N", "ragged")

#: Columns per token.
_PER_TOKEN = frozenset(
    {"mask", "advantage", "value", "old_value", "returns", "logprob", "old_logprob", "ref_logprob", "rollout_logprob"}
)

#: Most calls that a trial makes.
MOST = 160

#: Two results differ where their difference is above this.
_NEAR = 1e-6


def leaves(codecs: Iterable[Codec]) -> Iterator[Codec]:
    """The codecs, and those inside containers."""
    for codec in codecs:
        yield codec
        if isinstance(codec, Container):
            yield from leaves(codec.parts.values())


def tried(
    target: Target, build: Callable[[Mapping[str, Codec]], Boundary], arguments: Arguments
) -> tuple[Boundary, tuple[str, ...]]:
    """The boundary in the first binding that the function answers, the usual one first.

    A policy loss in which an advantage of one row weighs the log-probs of another broadcasts across rows where another
    binding does not: then the other one is taken. Where no binding is answered, it is the usual one, whose failure the
    audit reports.
    """
    usual = build(arguments.codecs)
    if not arguments.open:
        return usual, ()
    packed = any(isinstance(codec, CumulativeLengths) for codec in leaves(arguments.codecs.values()))
    answers = not packed and _answers(target, usual)
    if answers and not _mixes_rows(target, usual) and not _may_be_shifted(target, usual):
        return usual, ()
    for changed in _changes(arguments):
        boundary = build(_rebound(arguments.codecs, changed))
        if not _answers(target, boundary) or (answers and boundary.stage == "batch" and not _fits(target, boundary)):
            continue
        if not (answers and _mixes_rows(target, boundary)):
            return boundary, tuple(_note(path, text, mixed=answers) for path, text in changed.items())
    return usual, ()


def _note(path: str, text: str, *, mixed: bool) -> str:
    bind = f'bind={{"{path}": "{text}"}}'
    if mixed and "_of_sequence" not in text:
        return (
            f"{path} seems to have one number per response: as [B, T] it broadcasts across rows, so it was passed as "
            f"{text}; state it with {bind}"
        )
    return f"{path} was passed as {text}, which the function accepts; state it with {bind}"


def _changes(arguments: Arguments) -> Iterator[dict[str, str]]:
    """Alternative bindings of open parameters: few changes first, then other layouts of all tokens."""
    options = {path: ALTERNATIVES.get(column, ()) for path, column in arguments.open.items()}
    count = 0
    tokens = [path for path, column in arguments.open.items() if column in _PER_TOKEN]
    layouts = [{}, *({path: f"{arguments.open[path]}[{layout}]" for path in tokens} for layout in _LAYOUTS if tokens)]
    if any("length" in codec.shapes and not codec.columns for codec in arguments.codecs.values()):
        layouts = [*layouts[1:2], *layouts[:1], *layouts[2:]]
    for layout in layouts:
        for size in range(len(options) + 1):
            for chosen in combinations(options, size):
                for texts in product(*(options[path] for path in chosen)):
                    change = {**layout, **dict(zip(chosen, texts, strict=True))}
                    if layout:
                        change |= {p: _in_layout(t, layout.get(p, "")) for p, t in change.items() if p in chosen}
                    if change:
                        yield change
                        count += 1
                    if count >= MOST:
                        return


def _in_layout(text: str, layout: str) -> str:
    """A change of dtype in a layout of tokens; other changes replace the layout."""
    column, _, dtype = text.partition(" ")
    return f"{layout} {dtype}" if dtype and "[" not in column and layout else text


def _rebound(codecs: Mapping[str, Codec], changed: Mapping[str, str], place: str = "") -> dict[str, Codec]:
    """The codecs with some parameters bound in another way."""
    made: dict[str, Codec] = {}
    for name, codec in codecs.items():
        path = f"{place}{name}"
        if path in changed:
            made[name] = codec_of(changed[path])
        elif isinstance(codec, Container) and any(key.startswith(f"{path}.") for key in changed):
            made[name] = replace(codec, parts=_rebound(codec.parts, changed, f"{path}."))  # type: ignore[type-var]
        else:
            made[name] = codec
    return made


def _called(target: Target, boundary: Boundary, batch: Batch) -> dict[str, Tensor]:
    case = Case(batch)
    return execute(target, boundary, inputs_of(boundary, case, batch), references=False).values


def _answers(target: Target, boundary: Boundary) -> bool:
    """Whether the function takes these arguments and gives its output in the shape of its stage."""
    batch = _in_domain(boundary)
    try:
        values = _called(target, boundary, batch)
    except Exception:  # noqa: BLE001 - whatever the function raises, the binding is not accepted
        return False
    sizes = {"B": batch.rows, "T": batch.width}
    return all(
        isinstance(value, Tensor) and list(value.shape) == [sizes[a] for a in boundary.outputs[name].axes.split()]
        for name, value in values.items()
    )


def _in_domain(boundary: Boundary) -> Batch:
    return probe_batch() if boundary.domain is None else boundary.domain(probe_batch())


def _may_be_shifted(target: Target, boundary: Boundary) -> bool:
    """Whether a function of logits does not fit its definition where tokens stand beside their logits."""
    return boundary.stage == "batch" and not _fits(target, boundary)


def _fits(target: Target, boundary: Boundary) -> bool:
    """Whether each output is the one that its definition gives on a small batch."""
    batch, settings = _in_domain(boundary), next(iter(boundary.settings.values()))
    try:
        values = _called(target, boundary, batch)
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


def _mixes_rows(target: Target, boundary: Boundary) -> bool:
    """Whether the advantage of one row changes the gradient to the log-probs of another."""
    if boundary.stage != "policy-loss" or not {"advantage", "logprob"} <= boundary.reads:
        return False
    batch = _in_domain(boundary)
    higher = batch.advantage.clone()
    higher[0] += 1.0
    try:
        one, two = (_slopes(target, boundary, batch, x) for x in (batch.advantage, higher))
    except Exception:  # noqa: BLE001 - a loss without a gradient is judged by the laws
        return False
    return bool(((one - two)[1:].abs() > _NEAR).any())


def _slopes(target: Target, boundary: Boundary, batch: Batch, advantage: Tensor) -> Tensor:
    copy = lazily(batch, torch.clone)
    copy.logprob.requires_grad_(True)  # noqa: FBT003 - torch's own signature
    values: dict[str, Any] = _called(target, boundary, replace(copy, advantage=advantage, logprob=copy.logprob))
    gradient: Tensor = torch.autograd.grad(values["loss"].sum(), copy.logprob)[0]
    return gradient
