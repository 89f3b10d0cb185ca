"""Boundaries of verl's data-parallel actor before 0.8: its whole update, from the trainer's batch to the gradient."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.result_forms import Total
from rl_sentinel.adapters.kit.value_codecs import Constant, Earlier, Knob, constants, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.actor import SECTION, actor
from rl_sentinel.adapters.verl.aggregation import aggregation
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, POLICY_TENSORS, every_token_is_trained
from rl_sentinel.adapters.verl.engine import NUMBERS, REGULARIZED
from rl_sentinel.adapters.verl.fakes import data_parallel_actor, run_update
from rl_sentinel.adapters.verl.losses import loss_mode, selectable
from rl_sentinel.adapters.verl.worker_batch import (
    accelerator_fakes,
    dynamic_batch_size,
    equal_rows,
    reads_response_mask,
    rows_are_equal,
    update_sizes,
    worker_data,
    worker_object,
)
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims, value_of
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

ACTOR = "verl.workers.actor.dp_actor.DataParallelPPOActor"
UPDATE = f"{ACTOR}.update_policy"

#: Paths of the function that reduces logged metrics, by release.
REDUCERS = ("verl.utils.metric.reduce_metrics", "verl.trainer.ppo.ray_trainer.reduce_metrics")

_LOSS = "dp_actor.py, update_policy: the policy loss minus the weighted entropy plus the weighted KL loss"

_KL = "dp_actor.py, update_policy: kl_penalty of log_prob and ref_log_prob by kl_loss_type"

#: Metrics that are logged over the trained tokens.
LOGGED: Mapping[str, Output] = {
    "actor/kl_loss": Output("", "nats", "kl.mean", over="live"),
    "actor/pg_clipfrac": Output("", "", "clip_fraction", over="live"),
    "actor/ppo_kl": Output("", "nats", "kl.k1", over="live"),
}

#: Terms of the loss that are logged, which are aggregated like the loss.
TERMS: Mapping[str, str] = {"actor/pg_loss": "loss.policy", "actor/kl_loss": "loss.kl"}

#: Claimed only for sequence means: with a token mean, unequal micro-batches change the loss (SPL001).
_BY_TOKENS = claims(
    "docs/perf/perf_tuning.rst: use_dynamic_bsz lets the model process similar tokens per micro-batch, for efficiency",
    inert={"use_dynamic_bsz": (False, True)},
)

_PAIRS = claims(
    "dp_actor.py, update_policy: kl_loss of the current and the reference policy; ppo_kl of the old and the current",
    output_pairs={"actor/kl_loss": "logprob against ref_logprob", "actor/ppo_kl": "old_logprob against logprob"},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the update of the actor, with the PPO loss and with other losses."""
    yield from try_bind(target, UPDATE, "policy-loss", lambda: _updates(target))


def _updates(target: Target) -> Iterator[Boundary]:
    source = inspect.getsource(target.find(ACTOR)).partition("def update_policy")[2]
    if "kl_loss" not in source:
        raise Unbindable("the update of this release has no KL loss, and takes its entropy from logits")
    modes = ("token-mean", "seq-mean-token-mean") if "loss_agg_mode" in source else ("token-mean",)
    yield from (update_of(target, mode, source, masked=reads_response_mask(source)) for mode in modes)
    if "use_dynamic_bsz" in source:
        yield _dynamic(update_of(target, "token-mean", source, masked=reads_response_mask(source)))
    names = selectable(target) if "loss_mode" in source else []
    yield from (_update_with_loss(target, name, source) for name in names)


def update_of(target: Target, mode: str, source: str, *, masked: bool) -> Boundary:
    """The boundary of an actor's update with policy loss, entropy and KL loss.

    ``source`` is that of the update, or of the actor's class. ``masked`` says whether the trainer passes a mask of
    trained tokens.
    """
    by_tokens = mode == "token-mean"
    terms = {name: Output("", "", term, over="live" if by_tokens else "rows") for name, term in TERMS.items()}
    every = {**terms, **(LOGGED if by_tokens else {})}
    logged = {name: output for name, output in every.items() if name in source}
    step = _step(target, _vanilla(target, mode, source), source)
    loss = Output("", "", "loss", at=Use("made")["losses"], form=Total())
    return Boundary(
        path=UPDATE,
        stage="policy-loss",
        steps=(step, *reducer_of(target)) if logged else (step,),
        unused=frozenset({"token"}),
        outputs={"loss": loss, **{name: replace(o, at=Use("logged")[name]) for name, o in logged.items()}},
        settings={mode: NUMBERS},
        claims=_algorithm(source)
        | claims(_KL, kl="k3")
        | _aggregated(target, mode)
        | _pairs(logged)
        | _unread(source)
        | (_BY_TOKENS if mode != "token-mean" and "use_dynamic_bsz" in source else Claims()),
        reach="actor.use_kl_loss=True, every actor update",
        requires=(no_empty_response, equal_micro_batches, *(() if masked else (every_token_is_trained,))),
    )


def _dynamic(made: Boundary) -> Boundary:
    """The boundary of the loss of an update without KL, with a dynamic batch size.

    Rows have equal length, and micro-batches have about equally many tokens.
    """
    return replace(
        made,
        steps=made.steps[:1],
        unused=made.unused | {"ref_logprob"},
        outputs={"loss": made.outputs["loss"]},
        settings={
            "dynamic batch size": {**NUMBERS, "kl_loss_coef": 0.0, "use_kl_loss": False, "use_dynamic_bsz": True}
        },
        claims=replace(made.claims, kl=None, output_pairs={}),
        reach="actor.use_dynamic_bsz=True, every actor update",
        requires=(*made.requires, rows_are_equal),
        domain=equal_rows,
    )


def _update_with_loss(target: Target, name: str, source: str) -> Boundary:
    """The boundary of the update with another policy loss, aggregated per sequence."""
    mode = loss_mode(target, name)
    numbers: Settings = {**mode.settings, **REGULARIZED}
    claimed = mode.claims | claims(_KL, kl="k3")
    options = {**mode.section, **knobs(*REGULARIZED)}
    config = actor(target, name, {**options, **_options("seq-mean-token-mean", source)}, policy=mode.policy)
    return replace(
        update_of(target, "seq-mean-token-mean", source, masked=reads_response_mask(source)),
        steps=(_step(target, config, source),),
        outputs={"loss": Output("", "", "loss", at=Use("made")["losses"], form=Total())},
        settings={name: numbers},
        claims=replace(claimed, algorithm=None)
        if value_of(claimed.rows) == "all"
        else claimed,  # the KL loss has another mean
        reach=f"actor.policy_loss.loss_mode={name} actor.use_kl_loss=True",
    )


def reducer_of(target: Target) -> tuple[Step, ...]:
    """The trainer's step that reduces the metrics of an update."""
    path = next(path for path in REDUCERS if target.has(path))
    return (Step(call=path, name="logged", arguments={"metrics": Earlier(Use("made")["metrics"])}),)


def _algorithm(source: str) -> Claims:
    """Dual clip if the update passes the dual-clip bound or selects a loss by name; else plain PPO clip."""
    dual = "clip_ratio_c" in source or "policy_loss_fn" in source
    return claims(_LOSS, algorithm="dual clip" if dual else "ppo")


def _unread(source: str) -> Claims:
    """Claims that clip limits have no effect, in early releases that do not read them."""
    limits = ("clip_high", "ceiling") if "policy_loss_fn" not in source else ()
    unread = {name: (NUMBERS[name], 1.5) for name in limits if SECTION[name] not in source}
    return claims("dp_actor.py, update_policy: the clip range of both sides is clip_ratio", inert=unread)


def _aggregated(target: Target, mode: str) -> Claims:
    """The claims about the aggregation; the mean over trained tokens in releases without modes."""
    if target.has("verl.trainer.ppo.core_algos.agg_loss"):
        return aggregation(target, mode)
    return claims("core_algos.compute_policy_loss: masked_mean of the token losses", aggregation="token-mean")


def _pairs(logged: Mapping[str, Output]) -> Claims:
    return replace(_PAIRS, output_pairs={n: claimed for n, claimed in _PAIRS.output_pairs.items() if n in logged})


def _options(mode: str, source: str) -> Mapping[str, Codec]:
    """Options of the update. With two epochs, the last step uses the old log-probs of the batch."""
    words = constants(kl_loss_type="low_var_kl", loss_agg_mode=mode, ppo_epochs=2)
    words["use_kl_loss"] = Knob("use_kl_loss", default=True)
    return {**words, **update_sizes(source), **dynamic_batch_size(), **constants(use_torch_compile=False)}


def _vanilla(target: Target, mode: str, source: str) -> Codec:
    numbers: dict[str, Codec] = {SECTION.get(name, name): Knob(name) for name in NUMBERS}
    numbers["clip_ratio"] = Knob("clip_low")  # older releases have one bound for both sides
    return actor(target, "vanilla", {**numbers, **_options(mode, source)})


def _step(target: Target, config: Codec, source: str) -> Step:
    outputs = {"log_probs": Column("logprob", leaf=True), "entropy": Column("entropy")}
    return Step(
        call=run_update,
        name="made",
        fakes=accelerator_fakes(target, ACTOR.rpartition(".")[0], source),
        arguments={
            "update": Constant(Function(UPDATE)),
            "worker": worker_object(data_parallel_actor, ACTOR, config, outputs, kind="__class__.__base__"),
            "data": worker_data(POLICY_TENSORS, **constants(temperature=1.0, multi_turn=True)),
        },
        produced_by={"data": f"{MASK_PRODUCER}; ray_trainer.py, fit: update_actor of the whole batch"},
    )
