"""SkyRL's policy losses, with the trainer's scaling of advantages, and the critic's loss."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCH_ROWS
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, has_trained_token
from rl_sentinel.adapters.kit.value_codecs import Derived, Earlier, Knob, constants
from rl_sentinel.adapters.skyrl.advantages import path_of, registered
from rl_sentinel.adapters.skyrl.arguments import CONFIG, MODULE, PRODUCED_BY, Arguments, arguments
from rl_sentinel.adapters.skyrl.loss_modes import MODES, logged, mode_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

REGISTRY = f"{MODULE}.PolicyLossRegistry"
PPO = f"{MODULE}.ppo_policy_loss"
SCALE = f"{MODULE}.apply_loss_reduction_to_advantages_minibatch"
CRITIC = f"{MODULE}.ppo_critic_loss"

#: The registered name of PPO's loss, which is also bound in micro-batches.
PLAIN = "regular"

#: The supervised loss, which another trainer calls.
_SUPERVISED = ("cross_entropy",)

#: Losses whose ratio divides by the sampler's policy.
_RATIO_TO_SAMPLER = ("rollout_is", "dppo")

WHOLE = claims(
    "configuration, loss_reduction: the average over all valid tokens in the batch, or over its sequences; worker.py, "
    "forward_backward and optim_step: gradients of micro-batches are accumulated",
    denominator="given",
)

#: Reductions that all releases have, and the fixed length that the last one divides by.
WHOLE_MEAN = "token_mean"
REDUCTIONS = (WHOLE_MEAN, "sequence_mean", "seq_mean_token_sum_norm")
LENGTH = 8

#: The mean over micro-batches of their token means; for a single micro-batch, the token mean.
LEGACY = "token_mean_legacy"

_SECTION = "trainer.algorithm"

_TOKENS = claims(
    "configuration, loss_reduction: the average over all valid tokens in the batch", aggregation="token-mean"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each registered policy loss, then PPO's loss in micro-batches and the critic's loss."""
    try:
        functions, forms = registered(target, REGISTRY), arguments(target)
    except Unbindable as why:
        yield Unbound.because(PPO, "policy-loss", why)
        return
    for name, function in functions.items():
        if name in _SUPERVISED:
            continue
        try:
            target.source(function)
            section(name).check(target)
            yield from bindable(target, *_policies(target, name, function, forms))
        except Unbindable as why:
            yield Unbound.because(path_of(function), "policy-loss", why)
    if PLAIN in functions:
        yield from bindable(target, _in_micro_batches(target, functions[PLAIN], forms))
    yield from bindable(target, _critic(forms))


def section(name: str, fields: Mapping[str, str] = MappingProxyType({})) -> Config:
    """The algorithm's section of the configuration; ``fields`` maps its fields to the neutral names of numbers."""
    fixed: Settings = {f"{_SECTION}.policy_loss_type": name, f"{_SECTION}.max_seq_len": LENGTH}
    knobs = {f"{_SECTION}.{field}": number for field, number in {"loss_reduction": "loss_reduction", **fields}.items()}
    return Config(CONFIG, fixed, knobs, section=_SECTION)


def scaling(forms: Arguments, micro_batch_size: Codec) -> Step:
    """The trainer's step that divides the advantages of a mini-batch by the denominator of the loss reduction."""
    arguments_: dict[str, Codec] = {
        "advantages": forms.column("advantage"),
        "loss_mask": forms.loss_mask,
        "loss_reduction": Knob("loss_reduction"),
        "micro_batch_size": micro_batch_size,
        **constants(max_seq_len=LENGTH, prompt_boundaries=None),
    }
    return Step(
        call=SCALE,
        name="scaled",
        arguments=arguments_,
        optional=frozenset({"prompt_boundaries"}),
        produced_by={"micro_batch_size": "trainer.py, _normalize_advantages: rows of a micro-batch of one mini-batch"},
    )


def loss_step(path: str, function: Callable[..., Any], forms: Arguments, advantage: Codec, config: Codec) -> Step:
    """The step that calls a registered loss; ``config`` is the algorithm's section."""
    arguments_ = (
        forms.column("logprob"),
        forms.column("old_logprob"),
        advantage,
        config,
        forms.loss_mask,
        forms.column("rollout_logprob"),
    )
    names = list(inspect.signature(function).parameters)[: len(arguments_)]
    producers = (PRODUCED_BY, "worker.py, _forward_backward_micro: rollout_logprobs from the sampler")
    return Step(
        call=path,
        name="result",
        arguments=dict(zip(names, arguments_, strict=False)),  # the first releases have no rollout log-probs
        produced_by=dict(zip(names[4:], producers, strict=False)),
    )


def rows_of(whole: Tensor, number: int, parts: int) -> Tensor:
    """The rows of one micro-batch, as the worker splits them."""
    return whole.tensor_split(parts)[number]


def _in_micro_batches(target: Target, function: Callable[..., Any], forms: Arguments) -> Boundary:
    """The boundary of the sum of the losses of micro-batches; of their mean, in releases without scaling."""
    path, scales = path_of(function), target.has(SCALE)
    rows_of_part: dict[str, Codec] = {
        "whole": Earlier(Use("scaled")),
        "number": Derived(lambda inputs: inputs.part[0]),
        "parts": Derived(lambda inputs: inputs.part[1]),
    }
    advantage: Codec = Object(rows_of, rows_of_part) if scales else forms.column("advantage")
    step = replace(loss_step(path, function, forms, advantage, section(PLAIN)), each=("micro_batch",))
    loss = Output("", "", "loss", at=Use("result")[0], join="sum" if scales else "mean")
    return Boundary(
        path=f"{SCALE} -> {path}" if scales else path,
        stage="policy-loss",
        steps=(scaling(forms, MICRO_BATCH_ROWS), step) if scales else (step,),
        unused=frozenset({"rollout_logprob"}),
        outputs={"loss": loss},
        settings={f"{PLAIN}, {r}, in micro-batches": {"loss_reduction": r} for r in REDUCTIONS},
        claims=MODES[PLAIN].claims | WHOLE,
        reach="trainer.micro_train_batch_size_per_gpu below the rows of a mini-batch",
        requires=(equal_micro_batches, has_trained_token),
    )


def _policies(target: Target, name: str, function: Callable[..., Any], forms: Arguments) -> Iterator[Boundary]:
    """Boundaries of the loss with the framework's defaults and, if its mode has numbers, with these numbers."""
    mode = mode_of(name)
    plain = _policy(target, function, section(name), forms, name)
    legacy = name == PLAIN and target.has(SCALE) and LEGACY in inspect.getsource(target.find(SCALE))
    reductions = (*REDUCTIONS, LEGACY) if legacy else REDUCTIONS
    settings: Mapping[str, Settings] = {
        f"{name}, {reduction}": {"loss_reduction": reduction} for reduction in reductions
    }
    yield replace(plain, settings=settings)
    numbers = section(name, mode.fields)
    if not mode.fields:
        return
    numbers.check(target)
    tokens: Settings = {"loss_reduction": WHOLE_MEAN, **mode.numbers}
    yield replace(
        _policy(target, function, numbers, forms, name),
        settings={f"{name}, with set numbers": tokens},
        claims=plain.claims | mode.algorithm | _TOKENS,
    )


def _policy(target: Target, function: Callable[..., Any], config: Config, forms: Arguments, name: str) -> Boundary:
    """The boundary of the loss, after the scaling step in releases that have such a step."""
    path, scales = path_of(function), target.has(SCALE)
    advantage: Codec = Earlier(Use("scaled")) if scales else forms.column("advantage")
    steps = (scaling(forms, Derived(lambda inputs: inputs.batch.rows)),) if scales else ()
    return Boundary(
        path=f"{SCALE} -> {path}" if scales else path,
        stage="policy-loss",
        steps=(*steps, loss_step(path, function, forms, advantage, config)),
        unused=frozenset({"old_logprob" if name in _RATIO_TO_SAMPLER else "rollout_logprob"}),
        outputs={"loss": Output("", "", "loss", at=Use("result")[0]), **logged(name, function)},
        settings={},
        claims=mode_of(name).claims,
        reach=f"trainer.algorithm.policy_loss_type={name}",
    )


def _critic(forms: Arguments) -> Boundary:
    arguments_ = {
        "values": forms.column("value"),
        "old_values": forms.column("old_value"),
        "returns": forms.column("returns"),
        "config": Config(CONFIG, knobs_at={f"{_SECTION}.value_clip": "value_clip"}, section=_SECTION),
        "loss_mask": forms.loss_mask,
    }
    return one_call(
        path=CRITIC,
        stage="value-loss",
        call=CRITIC,
        name="result",
        arguments=arguments_,
        produced_by={"loss_mask": PRODUCED_BY},
        outputs={"loss": Output("", "", "loss", at=Use("result")[0])},
        settings={"default": {"value_clip": 0.2}},
        reach="trainer.algorithm.advantage_estimator=gae",
    )
