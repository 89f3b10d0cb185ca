"""verl's training engine: the actor's whole loss, and the critic's, over micro-batches that the engine cuts itself."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Stage, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import NotApplicable, Unbindable
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.actor import SECTION, actor
from rl_sentinel.frameworks.verl.aggregation import HALVED, aggregation
from rl_sentinel.frameworks.verl.columns import absent
from rl_sentinel.frameworks.verl.correction import BOTH, WEIGHTS, accepts, remembered
from rl_sentinel.frameworks.world import group

MODULE = "verl.workers.engine.fsdp.transformer_impl"
CUT = f"{MODULE}.FSDPEngine.forward_backward_batch"
LOSS = "verl.workers.utils.losses.ppo_loss"
VALUE = "verl.workers.utils.losses.value_loss"
CRITIC = "verl.workers.config.FSDPCriticConfig"
TENSORS = "verl.utils.tensordict_utils.get_tensordict"

_GIVEN = claims(
    "fsdp/transformer_impl.py: the tokens of the mini-batch are counted for the loss's normalisation",
    denominator="given",
)

_LOSS = (
    "losses.ppo_loss and its comments: the policy loss, from which the weighted entropy loss is taken and to which "
    "the weighted KL loss is added; core_algos.compute_policy_loss_vanilla, docstring: dual-clip PPO"
)

_ROWS = "losses.ppo_loss: the global batch size is that of the mini-batch, whose rows are all counted"

_WEIGHED = (
    "losses.ppo_loss hands rollout_is_weights of the batch to the policy loss; compute_rollout_correction_weights, "
    "docstring: a single threshold clamps them"
)

#: What the loss is a function of.
READS = frozenset({"logprob", "old_logprob", "ref_logprob", "advantage", "entropy", "length", "mask"})

#: Modes of aggregation, each with the regularisers on.
MODES = ("token-mean", "seq-mean-token-mean")

#: What the two losses log beside themselves, where the release does.
LOGGED: Mapping[str, Mapping[str, Output]] = {
    LOSS: {"kl_loss": Output("", "nats", "kl.mean", over="live")},
    VALUE: {
        "critic/vf_clipfrac": Output("", "", "value_clip_fraction", over="live"),
        "critic/vpred_mean": Output("", "reward", "value.mean", over="live"),
    },
}

_REFERENCE = claims(
    "losses.ppo_loss: the KL penalty of log_prob and ref_log_prob, not yet weighed",
    output_pairs={"kl_loss": "logprob against ref_logprob"},
)

#: Numbers of the loss.
NUMBERS: Settings = {
    "entropy_coeff": 0.5,
    "kl_loss_coef": 0.25,
    "micro_batches": 1,
    "clip_low": 0.2,
    "clip_high": 0.2,
    "ceiling": 3.0,
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The actor's loss and the critic's, cut and accumulated by the engine."""
    roles: tuple[tuple[str, Stage, Callable[[Target], Iterator[Boundary]]], ...] = (
        (LOSS, "policy-loss", _actor),
        (VALUE, "value-loss", _critic),
    )
    for loss, stage, make in roles:
        try:
            for path in (loss, TENSORS, CUT):
                target.find(path)
        except Unbindable as why:
            if not absent(why):
                yield Unbound(f"{CUT} -> {loss}", stage, str(why))
            continue
        if loss == LOSS and _weighs(target) and (failing := target.fails(BOTH)):
            yield Unbound(f"{BOTH} -> {CUT} -> {LOSS}", stage, failing)
        vars(target.module(MODULE))["get_device_id"] = lambda: "cpu"  # a declared double: an accelerator on CPU
        yield from make(target)


def _critic(target: Target) -> Iterator[Boundary]:
    for mode in MODES:
        yield Boundary(
            path=f"{CUT} -> {VALUE}",
            stage="value-loss",
            call=partial(_valued, target, mode),
            reads=frozenset({"value", "old_value", "returns", "length", "mask"}),
            outputs={"loss": Output("", "", "loss"), **(_logged(target, VALUE) if mode == "token-mean" else {})},
            settings={mode: {"value_clip": 0.5, "micro_batches": 1}},
            claims=_GIVEN
            | aggregation(target, mode)
            | claims(HALVED, algorithm="clipped value", factor="half")
            | claims(_ROWS, rows="all"),
            reach="algorithm.adv_estimator=gae, every critic update",
        )


def _weighs(target: Target) -> bool:
    """Whether the loss takes the correction's weights."""
    return '"rollout_is_weights"' in inspect.getsource(target.find(LOSS))


def _actor(target: Target) -> Iterator[Boundary]:
    weighs = _weighs(target) and accepts(target, WEIGHTS["token"])
    weights = remembered(target) if weighs else None
    for mode in MODES:
        logged = _logged(target, LOSS) if mode == "token-mean" else {}  # other modes are no mean over live tokens
        yield Boundary(
            path=f"{BOTH} -> {CUT} -> {LOSS}" if weighs else f"{CUT} -> {LOSS}",
            stage="policy-loss",
            call=partial(_call, target, mode, weights),
            reads=READS | ({"rollout_logprob"} if weighs else set()),
            outputs={"loss": Output("", "", "loss"), **logged},
            settings={mode: NUMBERS},
            claims=_GIVEN
            | _REFERENCE
            | aggregation(target, mode)
            | claims(_LOSS, algorithm="dual clip", kl="k3")
            | claims(_ROWS, rows="all")
            | (claims(_WEIGHED, corrected_at_most=2.0, corrected_by="token") if weighs else Claims()),
            reach="actor.use_kl_loss=True, every actor update"
            + (", algorithm.rollout_correction.rollout_is=token" if weighs else ""),
        )


def _logged(target: Target, loss: str) -> Mapping[str, Output]:
    """What this release's loss logs, by its own source."""
    source = inspect.getsource(target.find(loss))
    return {name: output for name, output in LOGGED[loss].items() if f'"{name}"' in source}


def _call(
    target: Target, mode: str, weights: Callable[[Batch], Tensor] | None, batch: Batch, settings: Settings
) -> Mapping[str, Tensor]:
    parts = _parts(batch, settings)
    leaf = batch.logprob.detach().clone().requires_grad_()
    knobs = {SECTION.get(k, k): v for k, v in settings.items() if k != "micro_batches"}
    kinds = {"use_kl_loss": True, "kl_loss_type": "low_var_kl", "loss_agg_mode": mode}
    config = actor(target, "vanilla", {**knobs, **kinds})
    data = _data(target, batch, parts, {"rollout_is_weights": weights(batch)} if weights else {})
    answers = {"log_probs": leaf, "entropy": batch.entropy}
    total, logged = _through(target, partial(target.find(LOSS), config), answers, batch, data)
    return logged | {"loss": total + _sloping(batch.logprob, leaf)}


def _valued(target: Target, mode: str, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    parts = _parts(batch, settings)
    leaf = batch.value.detach().clone().requires_grad_()
    knobs = {"cliprange_value": settings["value_clip"], "loss_agg_mode": mode, "ppo_micro_batch_size_per_gpu": 4}
    config = target.call(CRITIC, **knobs)
    data = _data(target, batch, parts, {"values": batch.old_value, "returns": batch.returns})
    total, logged = _through(target, partial(target.find(VALUE), config), {"values": leaf}, batch, data)
    return logged | {"loss": total + _sloping(batch.value, leaf)}


def _parts(batch: Batch, settings: Settings) -> int:
    parts = int(settings["micro_batches"] or 1)
    if bool((batch.length == 0).any()) or batch.rows % parts:
        message = f"the engine cuts {batch.rows} rows into equal micro-batches only"
        raise NotApplicable(message)
    return parts


def _sloping(column: Tensor, leaf: Tensor) -> Tensor:
    """Zero, with the gradient that the engine has left on the leaf."""
    slope = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return ((column - column.detach()) * slope).sum()


def _through(
    target: Target,
    loss: Callable[..., Any],
    answers: Mapping[str, Tensor],
    batch: Batch,
    data: Any,  # noqa: ANN401 - a TensorDict
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss that the engine accumulates, of what the model answers, and what was logged over all parts."""
    seen: dict[str, list[Any]] = {name: [] for name in ("loss", *(n for table in LOGGED.values() for n in table))}
    engine = SimpleNamespace(
        ulysses_sequence_parallel_size=1,
        scaler=None,
        get_data_parallel_group=group,
        get_data_parallel_size=lambda: 1,
        _gradient_sync_context=lambda **_about: nullcontext(),
        forward_step=partial(_step, answers, batch.length.tolist(), seen),
    )
    target.call(CUT, engine, data, loss)
    return torch.stack(seen.pop("loss")).sum(), {name: _whole(parts) for name, parts in seen.items() if parts}


def _whole(parts: list[Any]) -> Tensor:
    """One number of the micro-batches' numbers: by the target's own aggregation, or their mean."""
    first, *rest = parts
    if not hasattr(first, "aggregate"):
        return torch.tensor([float(x) for x in parts]).mean()
    for other in rest:
        first.append(other)
    return torch.tensor(float(first.aggregate()))


def _step(
    answers: Mapping[str, Tensor],
    length: list[int],
    seen: Mapping[str, list[Any]],
    micro_batch: Any,  # noqa: ANN401 - a TensorDict
    loss_function: Callable[..., Any],
    **_about: object,
) -> tuple[Tensor, dict[str, Any]]:
    """What the model would answer at the rows of a micro-batch, and the loss of it.

    Rows are a prompt of one token and the response, without padding; position t predicts t + 1.
    """
    zero, rows = torch.zeros(1), micro_batch["row"].tolist()
    given = {n: torch.cat([x for r in rows for x in (c[r, : length[r]], zero)]) for n, c in answers.items()}
    loss, logged = loss_function(given, data=micro_batch, dp_group=None)
    for name in seen.keys() & logged.keys():
        seen[name].append(logged[name])
    seen["loss"].append(loss.detach())
    return loss, {"metrics": {}}


def _data(target: Target, batch: Batch, parts: int, more: Mapping[str, Tensor]) -> Any:  # noqa: ANN401 - a TensorDict
    prompt = torch.ones(batch.rows, 1, dtype=torch.int64)
    mask = batch.mask.to(torch.int64)
    tensors = {
        "prompts": prompt,
        "responses": batch.token,
        "attention_mask": torch.cat([prompt, batch.valid.to(torch.int64)], dim=1),
        "response_mask": mask,
        "loss_mask": mask,
        "old_log_probs": batch.old_logprob,
        "ref_log_prob": batch.ref_logprob,
        "advantages": batch.advantage,
        "row": torch.arange(batch.rows),
        **more,
    }
    about: dict[str, Any] = {
        "use_dynamic_bsz": False,
        "global_batch_size": batch.rows,
        "micro_batch_size_per_gpu": batch.rows // parts,
    }
    return target.call(TENSORS, tensor_dict=tensors, non_tensor_dict=about)
