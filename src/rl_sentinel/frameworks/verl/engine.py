"""verl's training engine: the actor's whole loss over micro-batches that the engine cuts itself."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import NotApplicable, Unbindable
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.aggregation import aggregation
from rl_sentinel.frameworks.verl.columns import absent, claims
from rl_sentinel.frameworks.verl.correction import BOTH, WEIGHTS, accepts, remembered
from rl_sentinel.frameworks.verl.losses import SECTION, actor
from rl_sentinel.frameworks.world import group

MODULE = "verl.workers.engine.fsdp.transformer_impl"
CUT = f"{MODULE}.FSDPEngine.forward_backward_batch"
LOSS = "verl.workers.utils.losses.ppo_loss"
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
    """The actor's loss, cut and accumulated by the engine."""
    try:
        for path in (LOSS, TENSORS, CUT):
            target.find(path)
    except Unbindable as why:
        if not absent(why):
            yield Unbound(f"{CUT} -> {LOSS}", "policy-loss", str(why))
        return
    vars(target.module(MODULE))["get_device_id"] = lambda: "cpu"  # a declared double: an accelerator on CPU
    weighs = '"rollout_is_weights"' in inspect.getsource(target.find(LOSS)) and accepts(target, WEIGHTS["token"])
    weights = remembered(target) if weighs else None
    for mode in MODES:
        yield Boundary(
            path=f"{BOTH} -> {CUT} -> {LOSS}" if weighs else f"{CUT} -> {LOSS}",
            stage="policy-loss",
            call=partial(_call, target, mode, weights),
            reads=READS | ({"rollout_logprob"} if weighs else set()),
            outputs={"loss": Output("", "", "loss")},
            settings={mode: NUMBERS},
            claims=_GIVEN
            | aggregation(target, mode)
            | claims(_LOSS, algorithm="dual clip", kl="k3")
            | claims(_ROWS, rows="all")
            | (claims(_WEIGHED, corrected_at_most="2.0", corrected_by="token") if weighs else {}),
            reach="actor.use_kl_loss=True, every actor update"
            + (", algorithm.rollout_correction.rollout_is=token" if weighs else ""),
        )


def _call(
    target: Target, mode: str, weights: Callable[[Batch], Tensor] | None, batch: Batch, settings: Settings
) -> Mapping[str, Tensor]:
    parts = int(settings["micro_batches"] or 1)
    if bool((batch.length == 0).any()) or batch.rows % parts:
        message = f"the engine cuts {batch.rows} rows into equal micro-batches only"
        raise NotApplicable(message)
    leaf = batch.logprob.detach().clone().requires_grad_()
    knobs = {SECTION.get(k, k): v for k, v in settings.items() if k != "micro_batches"}
    kinds = {"use_kl_loss": True, "kl_loss_type": "low_var_kl", "loss_agg_mode": mode}
    config = actor(target, "vanilla", {**knobs, **kinds})
    losses: list[Tensor] = []
    engine = SimpleNamespace(
        ulysses_sequence_parallel_size=1,
        scaler=None,
        get_data_parallel_group=group,
        get_data_parallel_size=lambda: 1,
        _gradient_sync_context=lambda **_about: nullcontext(),
        forward_step=partial(_step, (leaf, batch.entropy), batch.length.tolist(), losses),
    )
    data = _data(target, batch, parts, {"rollout_is_weights": weights(batch)} if weights else {})

    target.call(CUT, engine, data, partial(target.find(LOSS), config))
    total = torch.stack(losses).sum()
    slope = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return {"loss": total + ((batch.logprob - batch.logprob.detach()) * slope).sum()}


def _step(
    columns: tuple[Tensor, Tensor],
    length: list[int],
    losses: list[Tensor],
    micro_batch: Any,  # noqa: ANN401 - a TensorDict
    loss_function: Callable[..., Any],
    **_about: object,
) -> tuple[Tensor, dict[str, Any]]:
    """What the model would answer at the rows of a micro-batch, and the loss of it.

    Rows are a prompt of one token and the response, without padding; position t predicts t + 1.
    """
    zero, rows = torch.zeros(1), micro_batch["row"].tolist()
    logprob, entropy = (torch.cat([x for r in rows for x in (c[r, : length[r]], zero)]) for c in columns)
    loss, _ = loss_function({"log_probs": logprob, "entropy": entropy}, data=micro_batch, dp_group=None)
    losses.append(loss.detach())
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
