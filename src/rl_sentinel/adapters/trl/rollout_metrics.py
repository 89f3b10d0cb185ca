"""TRL's rollout metrics: rewards, lengths and sampler mismatch, over ranks and in evaluation."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachCut, Object
from rl_sentinel.adapters.kit.forms import Number, PerRow, Ragged
from rl_sentinel.adapters.kit.requirements import equal_parts, group_sizes
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import (
    GRPO,
    RLOO,
    Completions,
    PromptsOfRanks,
    one_rank,
    trainer,
    truncated_fill_width,
)
from rl_sentinel.adapters.trl.rank_fakes import collectives
from rl_sentinel.adapters.trl.release import config_fields, log_place, logs_by_mode, scoring_path, source_of
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.rollout_fakes import evaluate_rollout, ready_to_score, rollout_modes, score_ranks
from rl_sentinel.adapters.trl.scoring import PRODUCER, rollout_conditions
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

_REWARDS: Mapping[str, Output] = {
    "reward": Output("", "reward", "outcome.mean", over="all"),
    "reward_std": Output("", "reward", "outcome.std", over="all"),
    "rewards/first/mean": Output("", "reward", "outcome.mean", over="all"),
    "rewards/first/std": Output("", "reward", "outcome.std", over="all"),
    "rewards/first": Output("", "reward", "outcome.mean", over="all"),
}

_LENGTHS: Mapping[str, Output] = {
    "reward": _REWARDS["reward"],
    "completions/mean_length": Output("", "tokens", "response_length.mean", over="all"),
    "completions/min_length": Output("", "tokens", "response_length.min", over="all"),
    "completions/max_length": Output("", "tokens", "response_length.max", over="all"),
    "completions/mean_terminated_length": Output("", "tokens", over="all"),
    "completions/min_terminated_length": Output("", "tokens", over="all"),
    "completions/max_terminated_length": Output("", "tokens", over="all"),
    "completions/clipped_ratio": Output("", "", "unscored.mean", over="all"),
    "completion_length": Output("", "tokens", "response_length.mean", over="all"),
}

_GROUPS: Mapping[str, Output] = {"frac_reward_zero_std": Output("", "", "dead_group_fraction")}

_SAMPLER: Mapping[str, Output] = {
    "sampling/sampling_logp_difference/mean": Output("", "nats", "kl.abs", over="live"),
    "sampling/sampling_logp_difference/max": Output("", "nats", over="live"),
}


@dataclass(frozen=True)
class Metrics:
    """Metrics that are logged under some settings."""

    logged: Mapping[str, Output]
    settings: Settings


#: The setting whose metrics are completion lengths, and the kind of trainer that logs no other rollout metrics.
LENGTHS, TEACHER = "logged lengths", "distillation"

METRICS: Mapping[str, Metrics] = {
    "logged rewards": Metrics(_REWARDS, {}),
    "logged, weighted": Metrics({n: _REWARDS[n] for n in ("reward", "reward_std")}, {"reward_weight": 2.0}),
    "logged": Metrics(_GROUPS, {}),
    LENGTHS: Metrics(_LENGTHS, {}),
    "logged, truncated masked": Metrics(_LENGTHS, {"mask_truncated_completions": True}),
    "logged, sampler": Metrics(_SAMPLER, {"use_vllm": True}),
}

#: Setting -> its field in the configuration.
_FIELDS = {"reward_weight": "reward_weights"}

_EVALUATED = (
    "transformers, Trainer.evaluation_loop: prediction_step of each batch with the model in evaluation mode; "
    "grpo_trainer.py, log: metrics of an evaluation have their own prefix"
)

_GAP = claims("grpo_trainer.py, sampling_logp_difference: the absolute difference of the log-probs", kl="abs")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the rollout metrics of GRPO and RLOO, and of lengths in distillation.

    GRPO and RLOO are bound in releases that log these metrics with the advantages.
    """
    for kind in ("grpo", "rloo"):
        path = scoring_path(target, kind)
        if not target.has(path) or target.fails(path) or "rewards_per_func" not in source_of(target.find(path)):
            continue
        for name, metrics in METRICS.items():
            needed = {_FIELDS.get(n, n) for n in metrics.settings}
            corrects = "importance_sampling_ratio" in source_of(target.find(path))
            if needed <= config_fields(target, kind) and (corrects or "use_vllm" not in needed):
                yield from bindable(target, *_training(target, path, kind, name, metrics))
        if logs_by_mode(target, kind) and target.has(f"{path.rpartition('.')[0]}.prediction_step"):
            yield from bindable(target, *_evaluation(target, path, kind), _modes(target, path, kind))
    path = scoring_path(target, TEACHER)
    if target.has(path) and not target.fails(path):
        yield from bindable(target, *_training(target, path, TEACHER, LENGTHS, METRICS[LENGTHS]))


def _logged(target: Target, path: str, logged: Mapping[str, Output], place: Use) -> dict[str, Output]:
    """The metrics that the release logs as the declared quantity. A mean of standard deviations is not."""
    owner = path.rpartition(".")[0]
    source = source_of(target.find(path))
    source += source_of(target.find(f"{owner}._generate")) if target.has(f"{owner}._generate") else ""
    other = {"reward_std"} if re.search(r"std(_grouped)?_rewards\.mean\(\)", source) else set()
    return {
        name: replace(output, at=place[name], form=Logged())
        for name, output in logged.items()
        if f'["{name.replace("first", "{reward_func_name}")}"]' in source and name not in other
    }


def _rollout_trainers(kind: str, settings: Settings, more: Mapping[str, Codec]) -> EachCut:
    """The trainers of all ranks before a rollout; the completions of a prompt may be on several ranks."""
    parts: dict[str, Codec] = {
        "trainer": trainer(kind, settings),
        "rank": Derived(lambda inputs: inputs.part[0]),
        "ranks": Derived(lambda inputs: inputs.part[1], frozenset({"ranks"})),
        "generations": Derived(lambda inputs: max(group_sizes(Inputs(inputs.mini_batch)))),
        "completions": Completions(cut="scored"),
        **({} if kind == TEACHER else {"rewards": Column("reward", PerRow("list"))}),
        "old_logprobs": Derived(
            lambda inputs: torch.zeros(inputs.batch.mask.shape)
        ),  # RLOO sums them, but no metric depends on them
        **more,
    }
    at = {name: f"rollout.{name}" for name in ("completions", "rewards", *more) if name in parts}
    at |= {"trainer": "", "generations": "num_generations"}
    at |= {"rank": "accelerator.process_index", "ranks": "accelerator.num_processes"}
    return EachCut(Object(ready_to_score, parts, at=at), "ranks")


def _training(target: Target, path: str, kind: str, name: str, metrics: Metrics) -> Iterator[Boundary]:
    logged = _logged(target, path, metrics.logged, log_place(target, kind, Use("generated")))
    if not logged:
        return
    settings: Settings = {**({"kl_loss_coef": 0.0} if kind == "rloo" else {}), **metrics.settings}
    vllm = "use_vllm" in settings
    more: dict[str, Codec] = {}
    if vllm:
        more = {
            "old_logprobs": Column("old_logprob"),
            "sampler_logprobs": Column("rollout_logprob", Ragged(plain=True)),
        }
    yield one_call(
        path=path,
        stage="metric",
        call=score_ranks,
        name="generated",
        arguments={
            "method": Constant(path.rpartition(".")[2]),
            "trainers": _rollout_trainers(kind, settings, more),
            "inputs": PromptsOfRanks(),
        },
        produced_by={"inputs": PRODUCER},
        fakes=collectives(target, kind),
        outputs=logged,
        settings={name: settings},
        claims=_GAP if vllm else claims(PRODUCER),
        reach=", ".join(f"{k}={v}" for k, v in metrics.settings.items()) or "every rollout",
        requires=(*rollout_conditions(masked=True), truncated_fill_width, equal_parts),
    )


def _evaluation(target: Target, path: str, kind: str) -> Iterator[Boundary]:
    """The boundary of the metrics of an evaluation, and of the mean reward that the evaluation received."""
    owner = GRPO if kind == "grpo" else RLOO
    logged = _logged(target, path, {**_REWARDS, **_LENGTHS}, log_place(target, kind, Use("generated"), "eval"))
    settings: Settings = {"kl_loss_coef": 0.0} if kind == "rloo" else {}
    received = Output("", "reward", at=Use("generated").attribute("received"))
    yield one_call(
        path=f"{owner}.prediction_step",
        stage="metric",
        call=evaluate_rollout,
        name="generated",
        arguments={"trainers": _rollout_trainers(kind, settings, {}), "inputs": PromptsOfRanks()},
        produced_by={"inputs": _EVALUATED},
        fakes=collectives(target, kind),
        outputs={"received": received, **logged},
        settings={"evaluation": settings},
        claims=claims(_EVALUATED),
        reach="trainer.evaluate()",
        requires=(*rollout_conditions(masked=True), truncated_fill_width, equal_parts),
    )


def _modes(target: Target, path: str, kind: str) -> Boundary:
    """The boundary of the number of metrics that evaluation and training log under the wrong mode."""
    owner = GRPO if kind == "grpo" else RLOO
    settings: Settings = {"kl_loss_coef": 0.0} if kind == "rloo" else {}
    place = Use("generated")
    return one_call(
        path=f"{owner}.prediction_step -> {owner}.log",
        stage="batch",
        call=rollout_modes,
        name="generated",
        arguments={
            "method": Constant(path.rpartition(".")[2]),
            "trainers": _rollout_trainers(kind, settings, {}),
            "inputs": PromptsOfRanks(),
        },
        produced_by={"inputs": _EVALUATED},
        fakes=collectives(target, kind),
        outputs={
            "received": Output("", "reward", at=place.attribute("received")),
            "elsewhere": Output("", "count", "logged_elsewhere", at=place.attribute("elsewhere"), form=Number()),
        },
        settings={"evaluation": settings},
        claims=claims(_EVALUATED),
        reach="trainer.evaluate(), and eval_strategy",
        requires=(*rollout_conditions(masked=True), truncated_fill_width, one_rank),
    )
