"""Boundaries of verl's training engine: actor and critic losses over the micro-batches of the engine."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields as fields_of
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, Lengths, ResponseMask
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import AfterPrompt
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.result_forms import Total
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.actor import SECTION, actor, optimizer
from rl_sentinel.adapters.verl.aggregation import HALVED, aggregation
from rl_sentinel.adapters.verl.arguments import MASK, MASK_PRODUCER, POLICY_TENSORS
from rl_sentinel.adapters.verl.correction import BOTH, reach_of_weights, weights_of_sampler
from rl_sentinel.adapters.verl.fakes import EngineFake, cpu_device
from rl_sentinel.adapters.verl.losses import loss_mode, selectable
from rl_sentinel.adapters.verl.registries import LOSSES, registered
from rl_sentinel.core.boundary import Boundary, Output, Stage, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Absent, Unbindable

MODULE = "verl.workers.engine.fsdp.transformer_impl"
CUT = f"{MODULE}.FSDPEngine.forward_backward_batch"
LOSS = "verl.workers.utils.losses.ppo_loss"
VALUE = "verl.workers.utils.losses.value_loss"
CRITIC = "verl.workers.config.FSDPCriticConfig"
REDUCE = "verl.utils.metric.reduce_metrics"
TENSORS = "verl.utils.tensordict_utils.get_tensordict"

_GIVEN = claims(
    "fsdp/transformer_impl.py: the tokens of the mini-batch are counted for the loss's normalization",
    denominator="given",
)

LOSS_TERMS = (
    "losses.ppo_loss and its comments: the policy loss minus the weighted entropy loss plus the weighted KL loss; "
    "core_algos.compute_policy_loss_vanilla, docstring: dual-clip PPO"
)

ROWS = "losses.ppo_loss: the global batch size is that of the mini-batch, and counts all rows"

_WEIGHED = (
    "losses.ppo_loss passes rollout_is_weights of the batch to the policy loss; compute_rollout_correction_weights, "
    "docstring: a single threshold clamps them"
)

#: Aggregation modes of the boundaries.
MODES = ("token-mean", "seq-mean-token-mean")

#: Terms of the two losses that are logged, in releases that log them; aggregated like the loss.
TERMS: Mapping[str, Mapping[str, str]] = {
    LOSS: {"actor/pg_loss": "loss.policy", "actor/entropy_loss": "loss.entropy", "kl_loss": "loss.kl"},
    VALUE: {"critic/vf_loss": "loss"},
}

#: Metrics of the two losses that are means over trained tokens, in the mode of that mean.
LOGGED: Mapping[str, Mapping[str, Output]] = {
    LOSS: {"kl_loss": Output("", "nats", "kl.mean", over="live")},
    VALUE: {
        "critic/vf_clipfrac": Output("", "", "value_clip_fraction", over="live"),
        "critic/vpred_mean": Output("", "reward", "value.mean", over="live"),
    },
}

REFERENCE = claims(
    "losses.ppo_loss: the KL penalty of log_prob and ref_log_prob, before it is weighted",
    output_pairs={"kl_loss": "logprob against ref_logprob"},
)

#: Coefficients of the entropy and the KL loss.
REGULARIZED: Settings = {"entropy_coeff": 0.5, "kl_loss_coef": 0.25}

#: Numbers of the PPO loss.
NUMBERS: Settings = {**REGULARIZED, "clip_low": 0.2, "clip_high": 0.2, "ceiling": 3.0}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the losses of actor and critic, split into micro-batches and accumulated by the engine."""
    roles: tuple[tuple[str, Stage, Callable[[Target], Iterator[Boundary]]], ...] = (
        (LOSS, "policy-loss", _actor),
        (VALUE, "value-loss", _critic),
    )
    for loss, stage, make in roles:
        try:
            for path in (loss, TENSORS, CUT):
                target.find(path)
        except Unbindable as why:
            if not isinstance(why, Absent):
                yield Unbound.because(f"{CUT} -> {loss}", stage, why)
            continue
        if loss == LOSS and _takes_weights(target) and (failing := target.fails(BOTH)):
            yield Unbound(f"{BOTH} -> {CUT} -> {LOSS}", stage, failing)
        yield from bindable(target, *make(target))


def _critic(target: Target) -> Iterator[Boundary]:
    columns = {"values": Column("old_value"), "returns": Column("returns")}
    # Without one, releases of early 2026 load the tokenizer of a model.
    has_model = "model_config" in {field.name for field in fields_of(target.find(CRITIC))}
    for mode in MODES:
        fields = {
            **(constants(model_config=True) if has_model else {}),
            **optimizer(target),
            "cliprange_value": Knob("value_clip"),
            **constants(loss_agg_mode=mode, ppo_micro_batch_size_per_gpu=4),
        }
        config = Object(CRITIC, fields, shared=True)
        logged = _logged(target, VALUE, mode)
        answers = {"values": Column("value", leaf=True)}
        step = engine_step(VALUE, (config,), answers, columns, padded=_takes_padded(target, VALUE))
        yield Boundary(
            path=f"{CUT} -> {VALUE}",
            stage="value-loss",
            steps=(step, *reduce_step(logged)),
            unused=frozenset({"token"}),
            outputs=outputs_of(logged),
            settings={mode: {"value_clip": 0.5}},
            claims=denominators(target)
            | aggregation(target, mode)
            | claims(HALVED, algorithm="clipped value", factor="half")
            | claims(ROWS, rows="all"),
            reach="algorithm.adv_estimator=gae, every critic update",
            requires=(no_empty_response, equal_micro_batches),
        )


def denominators(target: Target) -> Claims:
    """What the engine says about the loss's denominators: it counts the tokens of a mini-batch since October 2025."""
    counts = not target.has(CUT) or "batch_num_tokens" in inspect.getsource(target.find(CUT))
    return _GIVEN if counts else Claims()


def _takes_padded(target: Target, loss: str) -> bool:
    """Whether a loss accepts padded model outputs, as in releases of September 2025."""
    return not re.search("unpad|no_padding", inspect.getsource(target.find(loss)))


def _takes_weights(target: Target) -> bool:
    """Whether the loss uses importance weights, if the batch has them."""
    return '"rollout_is_weights"' in inspect.getsource(target.find(LOSS))


def update_of_actor(target: Target) -> list[Boundary]:
    """Boundaries of the update with the PPO loss, one for each aggregation mode."""
    return [boundary for boundary in _actor(target) if set(boundary.settings) <= set(MODES)]


def _actor(target: Target) -> Iterator[Boundary]:
    corrected, weights = (weights_of_sampler(target) if _takes_weights(target) else None) or (None, None)
    for name, mode, settings, section, policy, loss_claims in _losses(target):
        whole = name == "vanilla"  # only with this loss: KL loss and importance weights
        kinds = constants(use_kl_loss=whole, kl_loss_type="low_var_kl", loss_agg_mode=mode)
        answers = {"log_probs": Column("logprob", leaf=True), "entropy": Column("entropy")}
        config = actor(target, name, {**section, **kinds}, policy=policy)
        logged = _logged(target, LOSS, mode)
        if not whole:  # the other terms have coefficient 0
            logged = {n: output for n, output in logged.items() if output.quantity == "loss.policy"}
        claimed = (
            loss_claims
            | (Claims() if loss_claims.row_order else denominators(target))
            | (REFERENCE | claims(LOSS_TERMS, kl="k3") if whole else Claims())
        )
        claimed |= claims(ROWS, rows="all")
        columns, before = POLICY_TENSORS, tuple[Step, ...]()
        if corrected and weights and whole:  # adapters/verl/losses.py binds the other losses with weights
            columns, before = {**POLICY_TENSORS, "rollout_is_weights": Earlier(weights)}, (corrected,)
            claimed |= claims(_WEIGHED, corrected_at_most=2.0, corrected_by="token")
        step = engine_step(LOSS, (config,), answers, columns, padded=_takes_padded(target, LOSS))
        yield Boundary(
            path=f"{corrected.call} -> {CUT} -> {LOSS}" if corrected and before else f"{CUT} -> {LOSS}",
            stage="policy-loss",
            steps=(*before, step, *reduce_step(logged)),
            unused=frozenset({"token"} if whole else {"token", "entropy", "ref_logprob"}),
            outputs=outputs_of(logged),
            settings={mode if whole else name: settings},
            claims=claimed,
            reach=("actor.use_kl_loss=True, every actor update" if whole else f"actor.policy_loss.loss_mode={name}")
            + (f", {reach_of_weights(before[0])}" if before else ""),
            requires=(no_empty_response, equal_micro_batches),
        )


def _losses(target: Target) -> Iterator[tuple[str, str, Settings, Mapping[str, Codec], Mapping[str, Codec], Claims]]:
    """Yield name, aggregation mode, numbers, knobs of the actor and loss sections, and claims of each loss.

    The PPO loss is bound in each mode, other losses with a sequence mean. Losses that read the counts of the mini-batch
    from the configuration are bound directly instead. The denominators of the other losses are visible only here.
    """
    for mode in MODES:
        knobs: dict[str, Codec] = {SECTION.get(k, k): Knob(k) for k in NUMBERS}
        yield "vanilla", mode, NUMBERS, knobs, {}, aggregation(target, mode) | claims(LOSS_TERMS, algorithm="dual clip")
    table = registered(target, LOSSES) or {}
    for name in selectable(target):
        if "global_batch_info" in inspect.getsource(inspect.unwrap(table[name])):
            continue
        chosen = loss_mode(target, name)
        yield name, "seq-mean-token-mean", chosen.settings, chosen.section, chosen.policy, chosen.claims


def _logged(target: Target, loss: str, mode: str) -> Mapping[str, Output]:
    """The metrics that the loss logs with an aggregation mode.

    A metric whose name is not in the source of the loss is left out: this release does not log it.
    """
    source, by_tokens = inspect.getsource(target.find(loss)), mode == "token-mean"
    terms = {n: Output("", "", term, over="live" if by_tokens else "rows") for n, term in TERMS[loss].items()}
    logged = {**terms, **(LOGGED[loss] if by_tokens else {})}
    return {name: output for name, output in logged.items() if f'"{name}"' in source}


def outputs_of(logged: Mapping[str, Output]) -> dict[str, Output]:
    """The loss that the engine accumulates, and the metrics reduced over all micro-batches."""
    loss = Output("", "", "loss", at=Use("self").attribute("losses"), form=Total())
    return {"loss": loss, **{name: replace(output, at=Use("logged")[name]) for name, output in logged.items()}}


def reduce_step(logged: Mapping[str, Output]) -> tuple[Step, ...]:
    """The trainer's step that reduces the metrics; no step if no metric is read."""
    cite = "trainer/ppo/ray_trainer.py: reduce_metrics of the metrics that a worker returns"
    arguments: dict[str, Codec] = {"metrics": Earlier(Use("trained")["metrics"])}
    return (Step(call=REDUCE, name="logged", arguments=arguments, produced_by={"metrics": cite}),) if logged else ()


def _with_prompt(inputs: Inputs) -> Tensor:
    """Token ids ``[B, 1 + T]`` of prompts of one token and responses; the engine reads only their number of rows."""
    return torch.ones(inputs.batch.rows, 1 + inputs.batch.width + inputs.layout.extra, dtype=torch.int64)


def engine_step(  # noqa: PLR0913 - what the loss reads, and where it comes from
    loss: str,
    configs: tuple[Codec, ...],
    answers: Mapping[str, Codec],
    columns: Mapping[str, Codec],
    cites: tuple[str, ...] = (),
    *,
    padded: bool = False,
) -> Step:
    """The step that runs the engine's loop over micro-batches.

    Args:
        loss: dotted path of the loss function.
        configs: first arguments of the loss.
        answers: model outputs per token, by name.
        columns: tensors of the batch besides tokens and masks.
        cites: further lines that produce the batch.
        padded: whether the loss takes padded outputs of the model.
    """
    engine = Object(EngineFake, {"answers": Table(answers), "lengths": Lengths(), "padded": Constant(padded)})
    tensors: dict[str, Codec] = {
        "prompts": Derived(lambda inputs: torch.ones(inputs.batch.rows, 1, dtype=torch.int64)),
        "responses": Column("token"),
        "attention_mask": ResponseMask(AfterPrompt(1)),
        "response_mask": MASK,
        "loss_mask": MASK,
        "row": Derived(lambda inputs: torch.arange(inputs.batch.rows)),
        **({"input_ids": Derived(_with_prompt, frozenset({"extra"}))} if padded else {}),
        **columns,
    }
    about: dict[str, Codec] = {
        "use_dynamic_bsz": Constant(value=False),
        "global_batch_size": Derived(lambda inputs: inputs.batch.rows),
        "micro_batch_size_per_gpu": Derived(
            lambda inputs: inputs.batch.rows // inputs.layout.micro_batches, frozenset({"micro_batches"})
        ),
    }
    data = Object(
        TENSORS,
        {"tensor_dict": Table(tensors), "non_tensor_dict": Table(about)},
        at={"tensor_dict": "", "non_tensor_dict": ""},
    )
    own = {str(1 + n): config for n, config in enumerate(configs)}
    places = {"0": "func"} | {name: f"args.{int(name) - 1}" for name in own}
    function = Object("functools.partial", {"0": Constant(Function(loss)), **own}, at=places)
    return Step(
        call=CUT,
        name="trained",
        fakes={f"{MODULE}.get_device_id": cpu_device},
        arguments={"self": engine, "data": data, "loss_function": function},
        produced_by={
            "data": "; ".join(
                [f"{MASK_PRODUCER}; workers/engine_workers.py, train_mini_batch: micro-batch size and counts", *cites]
            )
        },
    )
