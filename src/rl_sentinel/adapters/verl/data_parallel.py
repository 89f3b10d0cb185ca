"""verl's data-parallel actor, of releases before 0.8: its whole update, from the trainer's batch to the gradient."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import AfterPrompt
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.result_forms import Total
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.actor import SECTION, actor
from rl_sentinel.adapters.verl.aggregation import aggregation
from rl_sentinel.adapters.verl.arguments import MASK, MASK_PRODUCER, absent, constants, every_token_is_trained
from rl_sentinel.adapters.verl.doubles import cpu_device, data_parallel_actor, no_memory, return_unmoved, updated
from rl_sentinel.adapters.verl.engine import NUMBERS
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Unbindable

ACTOR = "verl.workers.actor.dp_actor.DataParallelPPOActor"
UPDATE = f"{ACTOR}.update_policy"

#: Where releases have the reducer of what a worker logged.
REDUCERS = ("verl.utils.metric.reduce_metrics", "verl.trainer.ppo.ray_trainer.reduce_metrics")

_LOSS = (
    "dp_actor.py, update_policy: the policy loss, from which the weighted entropy is taken and to which the weighted "
    "KL loss is added"
)

_KL = "dp_actor.py, update_policy: kl_penalty of log_prob and ref_log_prob by kl_loss_type"

#: What is logged over the trained tokens of the batch.
LOGGED: Mapping[str, Output] = {
    "actor/kl_loss": Output("", "nats", "kl.mean", over="live"),
    "actor/pg_clipfrac": Output("", "", "clip_fraction", over="live"),
    "actor/ppo_kl": Output("", "nats", "kl.k1", over="live"),
}

_PAIRS = claims(
    "dp_actor.py, update_policy: kl_loss of the current and the reference policy; ppo_kl of the old and the current",
    output_pairs={"actor/kl_loss": "logprob against ref_logprob", "actor/ppo_kl": "old_logprob against logprob"},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The update of the actor, one for each mode of aggregation that the release has."""
    try:
        target.find(UPDATE)
    except Unbindable as why:
        if not absent(why):
            yield Unbound(UPDATE, "policy-loss", str(why))
        return
    source = inspect.getsource(target.find(ACTOR)).partition("def update_policy")[2]
    modes = ("token-mean", "seq-mean-token-mean") if "loss_agg_mode" in source else ("token-mean",)
    yield from bindable(target, *(_update(target, mode, source) for mode in modes))


def _accelerator(target: Target, source: str) -> dict[str, Callable[..., Any]]:
    """Doubles of a machine without an accelerator: its device, moves there, and what is logged of its memory."""
    found: dict[str, Callable[..., Any]] = {}
    if "get_device_id()" in source:
        found[f"{ACTOR.rpartition('.')[0]}.get_device_id"] = cpu_device
    if ".cuda()" in source:
        found["verl.protocol.TensorDict.cuda"] = return_unmoved
    for path in ("verl.utils.debug.performance", "verl.utils.profiler.performance"):
        if target.has(f"{path}._get_current_mem_info"):
            found[f"{path}._get_current_mem_info"] = no_memory
    return found


def _update(target: Target, mode: str, source: str) -> Boundary:
    masked = "loss_mask" in source or '"response_mask"' in source
    logged = {name: output for name, output in LOGGED.items() if name in source and mode == "token-mean"}
    reducer = next(path for path in REDUCERS if target.has(path))
    steps = (_step(target, mode, source), Step(call=reducer, name="logged", arguments=_METRICS)) if logged else ()
    loss = Output("", "", "loss", at=Use("made")["losses"], form=Total())
    return Boundary(
        path=UPDATE,
        stage="policy-loss",
        steps=steps or (_step(target, mode, source),),
        unused=frozenset({"token"}),
        outputs={"loss": loss, **{name: replace(o, at=Use("logged")[name]) for name, o in logged.items()}},
        settings={mode: NUMBERS},
        claims=_algorithm(source) | claims(_KL, kl="k3") | _aggregated(target, mode) | _pairs(logged),
        reach="actor.use_kl_loss=True, every actor update",
        requires=(no_empty_response, equal_micro_batches, *(() if masked else (every_token_is_trained,))),
    )


_METRICS: Mapping[str, Codec] = {"metrics": Earlier(Use("made")["metrics"])}


def _algorithm(source: str) -> Claims:
    """Dual clip where the update hands on its bound or chooses a loss by name, plain clip before."""
    dual = "clip_ratio_c" in source or "policy_loss_fn" in source
    return claims(_LOSS, algorithm="dual clip" if dual else "ppo")


def _aggregated(target: Target, mode: str) -> Claims:
    """How token losses become one number; means over trained tokens before there was a mode."""
    if target.has("verl.trainer.ppo.core_algos.agg_loss"):
        return aggregation(target, mode)
    return claims("core_algos.compute_policy_loss: masked_mean of the token losses", aggregation="token-mean")


def _pairs(logged: Mapping[str, Output]) -> Claims:
    return replace(_PAIRS, output_pairs={n: said for n, said in _PAIRS.output_pairs.items() if n in logged})


def _step(target: Target, mode: str, source: str) -> Step:
    """Two epochs over one mini-batch, so that the old log-probs are those of the batch; the last step is read."""
    numbers: dict[str, Codec] = {SECTION.get(name, name): Knob(name) for name in NUMBERS}
    sizes: dict[str, Codec] = {
        "ppo_mini_batch_size": Derived(lambda inputs: inputs.batch.rows),
        "ppo_micro_batch_size_per_gpu": Derived(
            lambda inputs: inputs.batch.rows // inputs.layout.micro_batches, frozenset({"micro_batches"})
        ),
    }
    numbers["clip_ratio"] = Knob("clip_low")  # releases without two bounds have one for both sides
    kinds = constants(
        use_kl_loss=True, kl_loss_type="low_var_kl", loss_agg_mode=mode, ppo_epochs=2, use_dynamic_bsz=False
    )
    answers = Table({"log_probs": Column("logprob", leaf=True), "entropy": Column("entropy")})
    parts: dict[str, Codec] = {
        "0": Constant(Function(ACTOR)),
        "1": actor(target, "vanilla", {**numbers, **kinds, **sizes}),
        "2": answers,
    }
    places = {"0": "__class__.__base__", "1": "config", "2": "actor_optimizer.answers"}
    tensors: dict[str, Codec] = {
        "responses": Column("token"),
        "input_ids": Derived(_row_numbers, frozenset({"extra"})),
        "attention_mask": ResponseMask(AfterPrompt(1)),
        "position_ids": Derived(_positions, frozenset({"extra"})),
        "response_mask": MASK,
        "loss_mask": Column("mask", AfterPrompt(0), torch.int64),
        "old_log_probs": Column("old_logprob"),
        "ref_log_prob": Column("ref_logprob"),
        "advantages": Column("advantage"),
    }
    meta = Derived(lambda _inputs: {"temperature": 1.0, "multi_turn": True})
    data = Object(
        "verl.DataProto.from_dict",
        {"tensors": Table(tensors), "meta_info": meta},
        at={"tensors": "batch"},
    )
    return Step(
        call=updated,
        name="made",
        doubles=_accelerator(target, source),
        arguments={
            "update": Constant(Function(UPDATE)),
            "actor": Object(data_parallel_actor, parts, at=places),
            "data": data,
        },
        produced_by={"data": f"{MASK_PRODUCER}; ray_trainer.py, fit: update_actor of the whole batch"},
    )


def _row_numbers(inputs: Inputs) -> torch.Tensor:
    """Token ids of a prompt of one token, the number of the row, and of a response of zeros."""
    rows = torch.arange(inputs.batch.rows).unsqueeze(1)
    return torch.nn.functional.pad(rows, (0, inputs.batch.width + inputs.layout.extra))


def _positions(inputs: Inputs) -> torch.Tensor:
    """Positions of a prompt of one token, the response and its padding."""
    width = 1 + inputs.batch.width + inputs.layout.extra
    return torch.arange(width).expand(inputs.batch.rows, -1)
