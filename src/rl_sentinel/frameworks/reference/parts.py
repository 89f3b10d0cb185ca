"""Boundaries of the parts that estimators and losses are made of: aggregation and alignment."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.core.boundary import Boundary, Output, Stage
from rl_sentinel.core.case import Settings
from rl_sentinel.frameworks.reference.arguments import SIGNAL, claims, given
from rl_sentinel.frameworks.target import Target

#: A fixed length that sums may be divided by, in tokens.
LENGTH = 8

#: Mode of aggregation -> what of the whole mini-batch it is divided by.
DENOMINATORS: Mapping[str, Callable[[Batch], Tensor]] = {
    "token-mean": lambda b: b.mask.sum(),
    "sequence-mean-token-mean": lambda b: b.live.sum(),
    "sequence-mean-token-sum": lambda b: b.live.sum(),
    "token-sum": lambda b: torch.tensor(LENGTH * b.rows),
}

#: Every mode; the last has a denominator for each row too, which the target itself counts.
MODES = (*DENOMINATORS, PROMPTS := "prompt-mean")

#: Mode at which each loss is audited: all else of a mode is the aggregation's, which is audited at every one.
MODE = "sequence-mean-token-mean"


def settings_of(mode: str) -> Settings:
    """The settings of one mode of aggregation."""
    return {"aggregation": mode} | ({"length": LENGTH} if mode == "token-sum" else {})


def read_by(mode: str) -> frozenset[str]:
    """What a mode reads beside the mask."""
    return frozenset({"group"} if mode == PROMPTS else ())


def loss_output(mode: str) -> Output:
    """A loss; what is divided by trained tokens or live rows is declared over these."""
    return Output("", "", "loss", over="" if mode == "token-sum" else "live")


def in_parts(
    target: Target, batch: Batch, settings: Settings, loss: Callable[..., Tensor], **numbers: object
) -> dict[str, Tensor]:
    """The loss of a mini-batch, cut into as many micro-batches as the settings say.

    Denominators, and tokens that are chosen, are the whole's.
    """
    mode, parts = str(settings["aggregation"]), int(settings.get("micro_batches", 1) or 1)
    whole = _of_whole(target, mode, batch)
    chosen = numbers.pop("chosen", None)
    found = []
    for index in torch.arange(batch.rows).chunk(parts):
        own = {"chosen": chosen[index]} if isinstance(chosen, Tensor) else {}
        found.append(loss(take_rows(batch, index), **numbers, **own, aggregation=whole.of_rows(index)))
    return {"loss": torch.stack(found).sum()}


def _of_whole(target: Target, mode: str, batch: Batch) -> Any:  # noqa: ANN401 - of the tree that is audited
    if mode == PROMPTS:
        return target.call(f"{SIGNAL}.minibatches.aggregation", mode, mask=batch.mask, group=batch.group)
    count = float(DENOMINATORS[mode](batch).clamp(min=1))
    return target.call(f"{SIGNAL}.reduce.Aggregation", mode, count)


def aggregations(target: Target) -> Iterator[Boundary]:
    """The aggregation of numbers per token, one boundary for each mode, which is a claim."""
    path = f"{SIGNAL}.reduce.aggregate"

    def one(batch: Batch, **more: object) -> Tensor:
        found: Tensor = target.call(path, batch.advantage, mask=batch.mask, **more)
        return found

    for mode in MODES:
        yield Boundary(
            path=path,
            stage="aggregate",
            call=lambda batch, settings: in_parts(target, batch, settings, one),
            reads=frozenset({"advantage", "mask"}) | read_by(mode),
            outputs={"loss": loss_output(mode)},
            settings={mode: settings_of(mode)},
            claims=claims(target.find(path), aggregation=mode, denominator="given", mean="yes", masked_slots="any"),
        )


def alignments(target: Target) -> Iterator[Boundary]:
    """Numbers of rows put on tokens, and numbers of sequences put on responses."""
    path = f"{SIGNAL}.align.spread"
    said = {"credit": "outcome", "scope": "sequence", "algorithm": "outcome"}
    yield _on_tokens(target, path, "advantage", Output("B T", "reward", "advantage", "sequence"), said)
    path = f"{SIGNAL}.align.at_last"
    said = {"scope": "sequence", "algorithm": "outcome at the last trained token"}
    yield _on_tokens(target, path, "reward", Output("B T", "reward", "token_reward"), said)
    yield _of_sequences(target)


def _on_tokens(target: Target, path: str, stage: Stage, output: Output, said: Mapping[str, str]) -> Boundary:
    function = target.find(path)

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        return {output.quantity: target.call(path, **given(function, batch))}

    return Boundary(
        path=path,
        stage=stage,
        call=call,
        reads=frozenset({"reward", "mask"}),
        outputs={output.quantity: output},
        claims=claims(function, masked="yes", masked_slots="any", **said),
    )


def _of_sequences(target: Target) -> Boundary:
    """Sequences whose prompts differ in length, with other numbers wherever there is no response."""
    path = f"{SIGNAL}.align.response_aligned"

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        early = int(bool(settings["predicts_next"]))
        prompt = early + torch.arange(batch.rows) % 3
        size = int((prompt - early + batch.length).max())
        sequence = 50.0 + torch.arange(batch.rows * size, dtype=batch.logprob.dtype).reshape(batch.rows, size)
        for row in range(batch.rows):
            first, count = int(prompt[row]) - early, int(batch.length[row])
            sequence[row, first : first + count] = batch.logprob[row, :count]
        lengths = {"prompt_length": prompt, "length": batch.length, "width": batch.width}
        return {"logprob": target.call(path, sequence, **lengths, predicts_next=bool(early))}

    return Boundary(
        path=path,
        stage="batch",
        call=call,
        reads=frozenset({"logprob", "length"}),
        outputs={"logprob": Output("B T", "nats", "logprob")},
        settings={"predicts next": {"predicts_next": True}, "in place": {"predicts_next": False}},
        claims=claims(target.find(path), conserves="yes", padding="zero"),
    )
