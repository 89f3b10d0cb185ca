"""Boundaries of ``signal.path``: its results for sets of choices, and mini-batches of prompts."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.library.arguments import PADDED, SEGMENTS, SIGNAL, pack
from rl_sentinel.adapters.library.boundary_builder import bind
from rl_sentinel.adapters.library.path_choices import PATHS, PathChoices, grpo
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings

READY = f"{SIGNAL}.path.loss_ready"
APART = f"{SIGNAL}.ready.prompts_apart"


def boundaries(target: Target) -> Iterator[Boundary]:
    """Boundaries of the path under each set of choices, and mini-batches of prompts."""
    yield from (_path_boundary(target, path) for path in PATHS)
    yield bind(
        target,
        f"{READY} -> {APART}",
        "batch",
        _minibatches,
        reads="reward group mask",
        outputs={"reward": Output("B", "reward", "reward")},
        settings={"one prompt": {"prompts": 1}, "two prompts": {"prompts": 2}},
    )


def loss_ready(
    target: Target, batch: Batch, columns: tuple[str, ...], choices: Mapping[str, object], *, packed: bool = False
) -> Any:  # noqa: ANN401 - a class under audit
    """The result of the path for a rollout with these columns besides reward, group and mask."""
    read = {"last" if n == "last_step" else n: getattr(batch, n) for n in columns}
    plain: dict[str, Any] = {"reward": batch.reward, "group": batch.group, "mask": batch.mask}
    if packed:
        read = {n: c if n == "reward_parts" else pack(target, c, batch) for n, c in read.items()}
        plain["mask"] = target.call(SEGMENTS, pack(target, batch.mask, batch), batch.length)
    rollout = target.call(f"{SIGNAL}.rollout.Rollout", **plain, **read)
    return target.call(READY, rollout, by=target.call(f"{SIGNAL}.choices.Choices", **choices))


def _path_boundary(target: Target, path: PathChoices) -> Boundary:
    claims = target.find(f"{SIGNAL}.advantage.{path.module}.CLAIMS") if path.module else {}
    temporal = "value" in path.columns

    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        read = with_columns(batch, old_logprob=batch.logprob) if path.old_is_current else batch
        choices = path.choose(target, batch, settings)
        ready = loss_ready(target, read, path.columns, choices, packed=path.packed)
        if path.stage == "correct":
            return {"weight": ready.weight.detach(), "requires_grad": torch.tensor(float(ready.weight.requires_grad))}
        outputs = {n: getattr(ready, n) for n in path.outputs}
        if path.packed and temporal:
            layout = {"length": batch.length, "width": batch.width, "fill": 0.0}
            outputs = {n: target.call(PADDED, x, **layout) for n, x in outputs.items()}
        return outputs

    reads = {*path.columns, "reward", "group", "mask"} - {*path.unread}
    if path.packed:
        reads |= {"length"}
    if path.old_is_current:
        reads = (reads - {"old_logprob"}) | {"logprob"}
    return bind(
        target,
        f"{READY}.weight" if path.stage == "correct" else READY,
        path.stage,
        compute,
        reads=" ".join(reads),
        outputs=path.outputs,
        settings={path.name: path.settings or {"choices": path.name}},
        claims={"masked-slots": "any", **claims, **path.claims},
        claims_of=READY,
    )


def _minibatches(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    whole = loss_ready(target, batch, (), grpo(target))
    reward = torch.zeros_like(batch.reward)
    for part in target.call(APART, whole, prompts=settings["prompts"], generator=None):
        reward[torch.isin(batch.group, part.group)] = part.reward
    return {"reward": reward}
