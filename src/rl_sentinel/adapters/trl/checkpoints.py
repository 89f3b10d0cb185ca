"""The token count that TRL's online trainers log after a resume, compared with an uninterrupted run."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import Number, PerRow
from rl_sentinel.adapters.kit.requirements import group_sizes
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, RLOO, Completions, Prompts, trainer
from rl_sentinel.adapters.trl.release import log_place, scoring_path, source_of
from rl_sentinel.adapters.trl.rollout_fakes import ready_to_score
from rl_sentinel.adapters.trl.scoring import PRODUCER, rollout_conditions
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Logged numbers that count from the start of a run.
COUNTERS = ("num_tokens",)

_SAVED = (
    "transformers, Trainer._save_checkpoint: trainer_state.json holds the state of the trainer; a new process makes a "
    "new trainer, and reads the state before its first step"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the token counter of GRPO and of RLOO."""
    for kind, owner in (("grpo", GRPO), ("rloo", RLOO)):
        path = scoring_path(target, kind)
        if not target.has(path) or target.fails(path) or "rewards_per_func" not in source_of(target.find(path)):
            continue
        counters = [name for name in COUNTERS if f'["{name}"]' in _source(target, owner, path)]
        if counters:
            yield from bindable(target, _resumed(target, path, kind, counters))


def _source(target: Target, owner: str, path: str) -> str:
    own = f"{owner}._generate"
    return source_of(target.find(path)) + (source_of(target.find(own)) if target.has(own) else "")


def _resumed(target: Target, path: str, kind: str, counters: list[str]) -> Boundary:
    settings: Settings = {"kl_loss_coef": 0.0} if kind == "rloo" else {}
    parts: dict[str, Codec] = {
        "trainer": trainer(kind, settings),
        "generations": Derived(lambda inputs: max(group_sizes(inputs))),
        "completions": Completions(),
        "rewards": Column("reward", PerRow("list")),
    }
    parts |= {"old_logprobs": Column("old_logprob")} if kind == "rloo" else {}
    at = {**{name: f"rollout.{name}" for name in parts}, "trainer": "", "generations": "num_generations"}
    outputs = {}
    for name in counters:
        for run, quantity in {"whole": "uninterrupted", "resumed": "resumed"}.items():
            place = log_place(target, kind, Use("runs")[run])[name][-1]
            outputs[f"{name}, {run}"] = Output("", "tokens", f"{quantity}.{name}", at=place, form=Number())
    return one_call(
        path=path,
        stage="batch",
        call=before_and_after,
        name="runs",
        arguments={
            "entry": Constant(Function(path)),
            "whole": Object(ready_to_score, parts, at=at),
            "first": Object(ready_to_score, parts, at=at),
            "second": Object(ready_to_score, parts, at=at),
            "inputs": Prompts(),
        },
        produced_by={"inputs": PRODUCER},
        unused=frozenset({"old_logprob", "reward"}),
        outputs=outputs,
        settings={"restored": settings},
        claims=claims(_SAVED),
        reach="resume_from_checkpoint",
        requires=rollout_conditions(masked=False),
    )


def before_and_after(entry: Any, whole: Any, first: Any, second: Any, inputs: list[dict[str, str]]) -> dict[str, Any]:  # noqa: ANN401 - a method, trainers
    """Run two rollouts in one trainer, and again with the trainer state saved and loaded between them.

    Returns ``whole``, the trainer of both rollouts, and ``resumed``, the trainer that loaded the state.
    """
    entry(whole, inputs)
    entry(whole, inputs)
    entry(first, inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "trainer_state.json")
        first.state.save_to_json(path)
        second.state = type(first.state).load_from_json(path)
    entry(second, inputs)
    return {"whole": whole, "resumed": second}
