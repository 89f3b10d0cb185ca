"""PPO in TRL before 0.12: a whole step, from queries, responses and scores to applied gradients."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.pairs import even_rows
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.user_layouts import full_width
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Derived, Knob, constants, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.loop_codecs import FLAT, fills_width, sampled, several_tokens, trains_as_sampled
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.ppo_fakes import Accumulation, UpdatedModel, collate
from rl_sentinel.adapters.trl.ppo_losses import POLICY_LOGGED, VALUE_LOGGED
from rl_sentinel.adapters.trl.ppo_updates import is_white, returns_are_scores, values_for, whitened
from rl_sentinel.adapters.trl.token_model import PROMPT, ValueModel, token_ids
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Fields of the configuration: the score is the only reward, and a large ratio skips no mini-batch.
CONFIGURED: Mapping[str, Any] = {"ppo_epochs": 1, "adap_kl_ctrl": False, "init_kl_coef": 0.0, "ratio_threshold": 1e9}

#: Every return is the score.
UNDISCOUNTED: Settings = {"gamma": 1.0, "lam": 1.0, "vf_coef": 1.0}

#: An advantage is the difference of two values; the value loss does not count.
ONE_STEP: Settings = {"gamma": 1.0, "lam": 0.0, "vf_coef": 0.0}

#: The step's result.
TRAINED = Use("trained")

_POLICY = claims(
    "ppo_trainer.py, loss: ratio, clamp with cliprange, masked_mean",
    ratio=True,
    algorithm="ppo",
    aggregation="token-mean",
)
_VALUE = claims(
    "ppo_trainer.py, loss: 0.5 * masked_mean(torch.max(vf_losses1, vf_losses2), mask)",
    algorithm="clipped value",
    factor="half",
    aggregation="token-mean",
)
_SAMPLED = (no_empty_response, trains_as_sampled, several_tokens)


def boundaries(target: Target, trainer: str, config: str) -> Iterator[Boundary | Unbound]:
    """Boundaries of the step, in releases that divide a batch into mini-batches."""
    path = f"{trainer}.step"
    if not target.has(path) or "model_inputs" not in inspect.getsource(target.find(path)):
        return
    yield from bindable(target, _policy(path, config), _value(path, config))
    if "gradient_accumulation_steps" in inspect.signature(target.find(config)).parameters:
        yield from bindable(target, _accumulated(path, config))


def _step(path: str, config: str, known: Mapping[str, Codec], fixed: Settings, parts: Codec) -> Step:
    rollout: dict[str, Codec] = {
        "lengths": ResponseMask(NoPadding()),
        **dict.fromkeys(("logprobs", "old_logprobs", "ref_logprobs"), _flat(FLAT)),
        **dict.fromkeys(("values", "old_values"), _flat(0.0)),
        "scores": Derived(lambda inputs: torch.zeros(inputs.batch.rows)),
        **known,
    }
    settings: dict[str, Codec] = {
        "kind": Constant(Function(config)),
        "cliprange": Knob("clip_low", 0.2),
        "cliprange_value": Knob("value_clip", 0.2),
        **constants(**fixed),
    }
    return Step(
        call=run_step,
        name="trained",
        arguments={
            **functions(entry=path, trainer=path.rpartition(".")[0]),
            "config": Object(Configured, settings, at={name: name for name in settings}),
            "rollout": Object(Rollout, rollout),
            "parts": parts,
        },
        produced_by={"rollout": "step: lists of queries and responses, as generate returns them, and of scores"},
    )


def _flat(number: float) -> Derived:
    """A tensor ``[B, T]`` with the same number at every token."""
    return Derived(lambda inputs: torch.full(inputs.batch.mask.shape, number))


def _policy(path: str, config: str) -> Boundary:
    """The boundary of the policy loss.

    The values are chosen such that the computed advantages equal the advantage column.
    """
    old_values = Computed(
        frozenset({"advantage"}), lambda inputs: values_for(inputs.batch), "step computes the advantages from values"
    )
    known = {"old_values": old_values, "logprobs": Column("logprob"), "old_logprobs": Column("old_logprob")}
    settings: Settings = {"clip_low": 0.2, "clip_high": 0.2}
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(_step(path, config, known, ONE_STEP, Constant(1)),),
        outputs={"loss": _LOSS, **_logged(POLICY_LOGGED)},
        settings={"policy": settings},
        claims=_POLICY,
        reach="an optimizer step after the first of a batch",
        requires=(*_SAMPLED, is_white),
        domain=lambda batch: whitened(sampled(batch)),
    )


def _value(path: str, config: str) -> Boundary:
    """The boundary of the value loss. The ratio is 1 and the mean advantage is 0, so the policy loss is 0."""
    scores = Computed(frozenset({"returns"}), lambda inputs: inputs.batch.returns[:, 0], "each return is the score")
    known = {"values": Column("value"), "old_values": Column("old_value"), "scores": scores}
    return Boundary(
        path=path,
        stage="value-loss",
        steps=(_step(path, config, known, UNDISCOUNTED, Constant(1)),),
        outputs={"loss": _LOSS, **_logged(VALUE_LOGGED)},
        settings={"value": {"value_clip": 0.5}},
        claims=_VALUE,
        reach="an optimizer step after the first of a batch",
        requires=(*_SAMPLED, returns_are_scores),
        domain=one_return,
    )


def _accumulated(path: str, config: str) -> Boundary:
    """The boundary of the value loss of one optimizer step, over mini-batches with equal numbers of tokens."""
    boundary = _value(path, config)
    (step,) = boundary.steps
    return replace(
        boundary,
        steps=(replace(step, arguments={**step.arguments, "parts": MICRO_BATCHES}),),
        outputs={"loss": _LOSS},
        settings={"accumulated": dict(boundary.settings["value"])},
        reach="gradient_accumulation_steps above 1",
        requires=(*boundary.requires, fills_width, equal_micro_batches),
        domain=lambda batch: one_return(full_width(even_rows(batch))),
    )


def one_return(batch: Batch) -> Batch:
    """Make all returns of a response equal to its first return."""
    batch = sampled(batch)
    same = batch.returns[:, :1].expand(batch.mask.shape)
    return batch if torch.equal(same, batch.returns) else with_columns(batch, returns=same.clone())


_LOSS = Output("", "", "loss", at=TRAINED["loss"])


def _logged(outputs: Mapping[str, Output]) -> dict[str, Output]:
    return {f"ppo/{name}": replace(output, at=TRAINED["stats"][f"ppo/{name}"]) for name, output in outputs.items()}


@dataclass(frozen=True, slots=True)
class Rollout:
    """Responses ``[B, T]`` with log-probs of policy and reference, values, and scores ``[B]``.

    ``lengths`` is a mask that is 1 at response tokens. Without a gradient, the policy and its value head return
    ``old_logprobs`` and ``old_values``. With a gradient, they return ``logprobs`` and ``values``.
    """

    lengths: Tensor
    logprobs: Tensor
    old_logprobs: Tensor
    ref_logprobs: Tensor
    values: Tensor
    old_values: Tensor
    scores: Tensor


class Configured:
    """The settings of a configuration, which can be built for any batch size."""

    def __init__(self, kind: Callable[..., Any], **fields: Any) -> None:  # noqa: ANN401 - of any field
        """Store the configuration class and its fields."""
        self.kind = kind
        self.__dict__ |= fields

    def build(self, **sizes: int) -> Any:  # noqa: ANN401 - a configuration
        """The configuration for these sizes, without the fields that the release lacks."""
        own = {name: value for name, value in self.__dict__.items() if name != "kind"}
        known = inspect.signature(self.kind).parameters
        return self.kind(**{n: value for n, value in {**CONFIGURED, **own, **sizes}.items() if n in known})


def run_step(entry: Callable[..., Any], trainer: Any, config: Configured, rollout: Rollout, parts: int) -> Any:  # noqa: ANN401 - of the target
    """Run one step; return the sum of the losses whose gradients are applied, and the statistics of the step."""
    rows, width = rollout.lengths.shape
    accelerator = Accumulation(parts)
    policy = UpdatedModel(
        ValueModel(rollout.old_logprobs, rollout.old_values), ValueModel(rollout.logprobs, rollout.values)
    )
    self = bare_instance(
        trainer,
        config=config.build(batch_size=rows, mini_batch_size=rows // parts, gradient_accumulation_steps=parts),
        model=policy,
        ref_model=ValueModel(rollout.ref_logprobs, rollout.old_values),
        accelerator=accelerator,
        optimizer=accelerator,
        lr_scheduler=None,
        data_collator=collate,
        tokenizer=SimpleNamespace(padding_side="left"),
        kl_ctl=SimpleNamespace(value=0.0, update=lambda *_measured: None),
        is_encoder_decoder=False,
        is_distributed=False,
        is_peft_model=False,
        optional_peft_ctx=nullcontext,
        current_device=accelerator.device,
        model_params=[],
    )
    counts = rollout.lengths.sum(1).tolist()
    queries = [torch.full((3 - n % 2,), PROMPT) for n in counts]  # by length, so that a row keeps its prompt
    responses = [row[:n] for row, n in zip(token_ids(rows, width), counts, strict=True)]
    stats = entry(self, queries, responses, list(rollout.scores))
    return {
        "loss": torch.stack(accelerator.applied).sum(),
        "stats": {name: torch.as_tensor(value) for name, value in stats.items() if name.startswith("ppo/")},
    }
