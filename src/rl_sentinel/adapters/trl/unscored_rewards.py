"""Advantages and logged rewards of TRL's online trainers where all reward functions return None for a completion."""

import inspect
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.requirements import (
    group_sizes,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, RLOO, Completions, Prompts, trainer, trains_whole_completions
from rl_sentinel.adapters.trl.release import NAME, log_place
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.rollout_fakes import ready_to_score
from rl_sentinel.adapters.trl.scoring import FAMILIES, PRODUCER, RLOO_FAMILIES, several_generations
from rl_sentinel.adapters.trl.tiny_trainer import RowRewards
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Inputs

_NONE = (
    "docs/source/grpo_trainer.md, Using a custom reward function: a function returns None where it does not apply, and "
    "is left out there; a completion that no function scores has no reward"
)

#: Weight of the second function, and the share of the reward that each function contributes.
WEIGHT, SHARE = 2.0, 0.5

#: Logged name -> the output that it is compared with.
LOGGED: Mapping[str, Output] = {"reward": Output("", "reward", "outcome.mean", over="live")}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the advantages and the logged reward, in releases whose reward functions may return None."""
    for kind, owner, families in (("grpo", GRPO, FAMILIES), ("rloo", RLOO, RLOO_FAMILIES)):
        path = f"{owner}.{NAME}"
        if not target.has(path) or target.fails(owner) or not _takes_none(target, owner):
            continue
        settings, said = families["default"]
        yield from bindable(target, _advantages(path, kind, settings, said), _logged(target, path, kind, settings))


def _takes_none(target: Target, owner: str) -> bool:
    """Whether a reward function of the release may return None."""
    source = inspect.getsource(target.find(owner))
    return "nansum" in source and "is not None else torch.nan" in source


def _rewards(inputs: Inputs) -> list[float | None]:
    batch = inputs.batch
    trains = (batch.mask & batch.valid).any(1)
    return [reward if live else None for reward, live in zip(batch.reward.tolist(), trains.tolist(), strict=True)]


def _step(path: str, kind: str, settings: Settings) -> Step:
    parts: dict[str, Codec] = {
        "trainer": trainer(kind, settings),
        "generations": Derived(lambda inputs: max(group_sizes(inputs))),
        "completions": Completions(),
        "rewards": Computed(frozenset({"reward", "mask"}), _rewards, "a completion without a reward has no number"),
    }
    parts |= {"old_logprobs": Column("old_logprob")} if kind == "rloo" else {}
    at = {**{name: f"rollout.{name}" for name in parts}, "trainer": "", "generations": "num_generations"}
    return Step(
        call=score_by_two_functions,
        name="generated",
        arguments={
            "entry": Constant(Function(path)),
            "ready": Object(ready_to_score, parts, at=at),
            "inputs": Prompts(),
        },
        produced_by={"inputs": PRODUCER},
    )


def _advantages(path: str, kind: str, settings: Settings, said: Claims) -> Boundary:
    return Boundary(
        path=path,
        stage="advantage",
        steps=(_step(path, kind, settings),),
        unused=frozenset({"old_logprob"}),
        outputs={"advantage": Output("B", "reward", "advantage", at=Use("generated")["found"]["advantages"])},
        settings={"some unscored": {**settings, **({"epsilon": 1e-4} if kind == "grpo" else {})}},
        claims=said | claims(_NONE),
        reach="two reward functions that return None for some completions",
        requires=CONDITIONS,
    )


def _logged(target: Target, path: str, kind: str, settings: Settings) -> Boundary:
    place = log_place(target, kind, Use("generated")["trainer"])
    return Boundary(
        path=path,
        stage="metric",
        steps=(_step(path, kind, settings),),
        unused=frozenset({"old_logprob"}),
        outputs={name: replace(output, at=place[name], form=Logged()) for name, output in LOGGED.items()},
        settings={"logged, some unscored": settings},
        claims=claims(_NONE),
        reach="two reward functions that return None for some completions",
        requires=CONDITIONS,
    )


def some_are_scored(inputs: Inputs) -> str:
    """The reason to skip a batch where a prompt has fewer than two completions with a reward; empty otherwise."""
    batch = inputs.batch
    scored = [int(batch.live[batch.group == label].sum()) for label in torch.unique(batch.group).tolist()]
    return "" if min(scored) > 1 else "a prompt has fewer than two completions with a reward"


CONDITIONS = (
    prompts_are_contiguous,
    groups_are_equal,
    no_empty_response,
    trains_whole_completions,
    several_generations,
    some_are_scored,
)


def score_by_two_functions(entry: Any, ready: Any, inputs: list[dict[str, str]]) -> dict[str, Any]:  # noqa: ANN401 - a method, a trainer
    """Score a rollout with two reward functions, whose weighted sum is the reward of the case.

    Both return None for a completion without a reward. Returns ``found``, the result of the method, and ``trainer``,
    the copy of the trainer that scored and logged.
    """
    (first,) = ready.reward_funcs
    shares = [None if value is None else value * SHARE for value in first.values]
    functions = [RowRewards("first", 1.0, shares), RowRewards("second", WEIGHT, shares)]
    scored = copy(ready)
    scored.reward_funcs, scored.reward_func_names = functions, ["first", "second"]
    scored.reward_weights = ready.reward_weights.new_tensor([1.0, WEIGHT])
    scored.reward_processing_classes = [None, None]
    return {"found": entry(scored, inputs), "trainer": scored}
