"""TRL's advantages: ``_generate_and_score_completions`` with known completions and rewards."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import PerRow, Ragged
from rl_sentinel.adapters.kit.requirements import (
    group_sizes,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import (
    GRPO,
    RLOO,
    Completions,
    Prompts,
    trainer,
    trains_every_completion,
    trains_whole_completions,
)
from rl_sentinel.adapters.trl.rank_fakes import collectives
from rl_sentinel.adapters.trl.release import NAME, config_fields, scoring_path, source_of
from rl_sentinel.adapters.trl.rollout_fakes import ready_to_score
from rl_sentinel.adapters.trl.two_ranks import rank_advantages, rollout_ranks
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Unbindable

_GROUPS = "grpo_trainer.py, _generate_and_score_completions: rewards.view(-1, num_generations), completions of a prompt"
_SCALED = "grpo_config.py, scale_rewards: rewards are scaled by the standard deviation within each group"
_UNSCALED = "grpo_config.py, scale_rewards: no scaling is applied"
_BATCH = "grpo_config.py, scale_rewards: rewards are scaled by the standard deviation across the entire batch"
_RLOO = (
    "rloo_trainer.py, _generate_and_score_completions: the mean of the other completions of the prompt is subtracted"
)

#: The lines that produce the rows, for ``produced_by``.
PRODUCER = (
    "grpo_trainer.py, _get_train_sampler: RepeatSampler yields num_generations consecutive rows per prompt; "
    "_generate_single_turn returns a list of ids per row, which ends with EOS unless max_completion_length truncates it"
)

_CENTERED = claims(_GROUPS, scope="group", baseline="relative", credit="outcome")
_GRPO = _CENTERED | claims(_GROUPS, algorithm="grpo", deviation="n - 1")
_EPSILON: Settings = {"epsilon": 1e-4}

#: Setting of GRPO -> configuration and claims.
FAMILIES: Mapping[str, tuple[Settings, Claims]] = {
    "default": ({}, _GRPO | claims(_SCALED, standardized=True)),
    "no scaling": ({"scale_rewards": "none"}, _GRPO | claims(_UNSCALED, standardized=False)),
    "batch scaling": (
        {"scale_rewards": "batch"},
        claims(_BATCH, baseline="relative", credit="outcome", scope="batch", standardized=True),
    ),
    "truncated masked": ({"mask_truncated_completions": True}, _GRPO | claims(_SCALED, standardized=True)),
}

#: Setting of RLOO -> configuration and claims.
RLOO_FAMILIES: Mapping[str, tuple[Settings, Claims]] = {
    "default": (
        {"kl_loss_coef": 0.0},
        claims(_RLOO, algorithm="rloo", scope="group", baseline="relative", credit="outcome", standardized=False),
    ),
    "normalized": (
        {"kl_loss_coef": 0.0, "normalize_advantages": True},
        claims(_RLOO, scope="batch", baseline="relative", credit="outcome"),
    ),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the advantages of GRPO and RLOO under each setting."""
    path = scoring_path(target, "grpo")
    try:
        target.find(path)
    except Unbindable as why:
        yield Unbound.because(path, "advantage", why)
        return
    if "rewards_per_func" not in source_of(target.find(path)):
        return  # the loss itself samples and scores: see early_losses
    for name, (settings, claimed) in FAMILIES.items():
        if set(settings) <= config_fields(target, "grpo") and _has_scaling(target, settings):
            yield from bindable(target, _advantages(path, "grpo", name, settings, claimed))
    yield from bindable(target, _over_ranks(target, path, "grpo", *FAMILIES["default"]))
    if target.has(f"{RLOO}.{NAME}"):
        for name, (settings, claimed) in RLOO_FAMILIES.items():
            yield from bindable(target, _advantages(f"{RLOO}.{NAME}", "rloo", name, settings, claimed))
        yield from bindable(target, _over_ranks(target, f"{RLOO}.{NAME}", "rloo", *RLOO_FAMILIES["default"]))


def _has_scaling(target: Target, settings: Settings) -> bool:
    """Whether the release supports the value of ``scale_rewards``, which is a flag in early releases."""
    value = settings.get("scale_rewards")
    return value is None or f'"{value}"' in source_of(target.find(scoring_path(target, "grpo")))


def _rollout_trainer(kind: str, settings: Settings, described: frozenset[str], parts: Mapping[str, Codec]) -> Object:
    """The trainer before a rollout; ``parts`` are fields of :class:`Rollout`."""
    every: dict[str, Codec] = {"trainer": trainer(kind, settings, described), **parts}
    at = {**{name: f"rollout.{name}" for name in parts}, "trainer": "", "generations": "num_generations"}
    return Object(ready_to_score, every, at=at)


def _environment(inputs: Inputs) -> list[list[int]]:
    """Per completion, 1 at tokens of the model; at all tokens of a truncated completion, because TRL masks it later."""
    batch = inputs.batch
    mask = torch.where(batch.live.unsqueeze(1), batch.mask, batch.valid).int()
    return [row[:n] for row, n in zip(mask.tolist(), batch.length.tolist(), strict=True)]


ENVIRONMENT = Computed(frozenset({"mask"}), _environment, "TRL masks a truncated completion later")


def rollout_steps(kind: str, settings: Settings, described: frozenset[str], *, tools: bool) -> list[Step]:
    """The step ``generated``: a rollout of all rows, from which a loss reads values that are computed over all rows."""
    owner = GRPO if kind == "grpo" else RLOO
    parts: dict[str, Codec] = {
        "completions": Completions(cut="mask"),
        "generations": Derived(lambda inputs: inputs.batch.rows),
        "old_logprobs": Column("old_logprob"),
        "ref_logprobs": Column("ref_logprob") if "kl_loss_coef" in settings else Constant(None),
        "sampler_logprobs": Column("rollout_logprob", Ragged(plain=True)) if "use_vllm" in settings else Constant(None),
        "env_mask": ENVIRONMENT if tools else Constant(None),
    }
    prompts = Derived(lambda inputs: [{"prompt": "w1"} for _ in range(inputs.batch.rows)])
    return [
        Step(
            call=f"{owner}.{NAME}",
            name="generated",
            arguments={"self": _rollout_trainer(kind, settings, described, parts), "inputs": prompts},
            produced_by={"inputs": PRODUCER},
        )
    ]


def no_extra_padding(inputs: Inputs) -> str:
    """The reason to skip a layout with padding beyond the longest completion (TRL adds none); empty otherwise."""
    width = inputs.batch.width + inputs.layout.extra
    longest = int(inputs.batch.length.max())
    return "" if longest == width else "TRL pads to the longest completion, but all are shorter than the width"


def _rollout(path: str, kind: str, settings: Settings) -> Step:
    parts: dict[str, Codec] = {
        "completions": Completions(cut="mask"),
        "generations": Derived(lambda inputs: max(group_sizes(inputs))),
        "rewards": Column("reward", PerRow("list")),
    }
    parts |= {"old_logprobs": Column("old_logprob")} if kind == "rloo" else {}
    return Step(
        call=path,
        name="generated",
        arguments={"self": _rollout_trainer(kind, settings, frozenset(), parts), "inputs": Prompts()},
        produced_by={"inputs": PRODUCER},
    )


def rollout_conditions(*, masked: bool) -> tuple[Callable[[Inputs], str], ...]:
    """The conditions of a rollout. Unless ``masked`` is True, every completion must train."""
    unmasked = () if masked else (trains_every_completion,)
    return (
        prompts_are_contiguous,
        groups_are_equal,
        no_empty_response,
        trains_whole_completions,
        several_generations,
        *unmasked,
    )


def several_generations(inputs: Inputs) -> str:
    """The reason to skip a batch with one completion per prompt (the configuration rejects it); empty otherwise."""
    return "the configuration rejects one completion per prompt" if max(group_sizes(inputs)) < 2 else ""


def _advantages(path: str, kind: str, name: str, settings: Settings, claimed: Claims) -> Boundary:
    masked = "mask_truncated_completions" in settings
    step = _rollout(path, kind, settings)
    formula = _EPSILON if kind == "grpo" else {}
    return Boundary(
        path=path,
        stage="advantage",
        steps=(step,),
        unused=frozenset({"old_logprob"}),
        outputs={"advantage": Output("B", "reward", "advantage", at=Use("generated")["advantages"])},
        settings={name: {**settings, **formula}},
        claims=claimed,
        reach=", ".join(f"{k}={v}" for k, v in settings.items()),
        requires=rollout_conditions(masked=masked),
    )


def _over_ranks(target: Target, path: str, kind: str, settings: Settings, claimed: Claims) -> Boundary:
    """The boundary of the advantages that two ranks get from a rollout.

    The completions of a prompt may be on both ranks.
    """
    boundary = _advantages(path, kind, "two ranks", settings, claimed)
    step = Step(
        call=rank_advantages,
        name="generated",
        arguments={
            "method": Constant(path.rpartition(".")[2]),
            "trainers": rollout_ranks(kind, settings, cut="mask"),
            "inputs": Prompts(),
        },
        produced_by={"inputs": PRODUCER},
        fakes=collectives(target, kind),
    )
    outputs = {"advantage": replace(boundary.outputs["advantage"], at=Use("generated"))}
    return replace(boundary, steps=(step,), reads=frozenset(), outputs=outputs, reach="data-parallel ranks")
