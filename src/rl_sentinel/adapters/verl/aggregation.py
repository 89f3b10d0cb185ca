"""Boundaries of verl's value loss, entropy loss, masked mean, and aggregation of token losses."""

import inspect
from collections.abc import Iterator, Mapping
from functools import partial

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.requirements import equal_parts, has_trained_token
from rl_sentinel.adapters.kit.result_forms import Detached
from rl_sentinel.adapters.kit.roles import by_role
from rl_sentinel.adapters.kit.value_codecs import Derived, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK, MASK_PRODUCER, ROLES
from rl_sentinel.adapters.verl.listed_options import aggregations
from rl_sentinel.adapters.verl.registries import MODULE
from rl_sentinel.adapters.verl.source_names import defined_functions
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

VALUE = f"{MODULE}.compute_value_loss"
ENTROPY = f"{MODULE}.compute_entropy_loss"
AGGREGATE = f"{MODULE}.agg_loss"
MEAN = "verl.utils.torch_functional.masked_mean"

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")

#: verl's name of a mode -> the usual name.
NAMES: Mapping[str, str] = {
    "token-mean": "token-mean",
    "token-sum": "token-sum",
    "seq-mean-token-sum": "sequence-mean-token-sum",
    "seq-mean-token-sum-norm": "sequence-mean-token-sum-by-width",
    "seq-mean-token-mean": "sequence-mean-token-mean",
}

#: Denominators that the trainer passes, counted over the mini-batch and all ranks.
GLOBAL: Settings = {"tokens": 64, "rows": 16, "ranks": 2}

#: Setting -> the parameter of ``agg_loss`` that takes it.
PARAMETERS: Mapping[str, str] = {
    "tokens": "batch_num_tokens",
    "rows": "global_batch_size",
    "ranks": "dp_size",
    "scale": "loss_scale_factor",
}

_COUNTS = (
    "workers/engine/fsdp/transformer_impl.py, forward_backward_batch: tokens are counted over the ranks' mini-batch"
)

_ROWS = "core_algos.agg_loss, docstring: global_batch_size is the global batch size, masked sequences included"

#: Defaults of ``agg_loss`` for denominators that are not passed.
_DEFAULTS: Settings = {"tokens": None, "rows": None, "ranks": 1}

_MODES = "core_algos.agg_loss, docstring: how the loss matrix is aggregated into a scalar, and over which counts"

CLIPPED = "critic/vf_clipfrac"

_ENTROPY = "core_algos.compute_entropy_loss, docstring: categorical entropy"

_LIVE = "core_algos.agg_loss, comment beside the row mask: fully masked sequences are excluded"

HALVED = (
    "core_algos.compute_value_loss, docstring: the clipped value-function loss for PPO, as in TRL's ppo_trainer, "
    "which takes half of the larger squared error"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the value loss, the masked mean, the entropy loss, and the aggregation in each mode."""
    yield from try_bind(target, VALUE, "value-loss", lambda: _value(target), required=True)
    if target.has(MEAN):
        yield from try_bind(target, MEAN, "aggregate", partial(_mean, target))
    for path, make in ((ENTROPY, _entropy), (AGGREGATE, _aggregations)):
        if _exists(target, path):
            yield from try_bind(target, path, "aggregate", partial(make, target), required=True)


def _mean(target: Target) -> Iterator[Boundary]:
    """The boundary of the mean that losses and metrics use, if its docstring says that it ignores masked elements."""
    function = target.find(MEAN)
    if "over elements selected by" not in (function.__doc__ or ""):
        return
    yield one_call(
        path=MEAN,
        stage="aggregate",
        call=MEAN,
        name="mean",
        arguments={"values": Column("advantage"), "mask": MASK},
        produced_by={"mask": MASK_PRODUCER},
        outputs={"loss": Output("", "", "loss", at=Use("mean"))},
        claims=claims(
            "torch_functional.masked_mean, docstring: the mean of values over elements selected by mask",
            aggregation="token-mean",
            masked_slots="any",
        ),
        reach="every token mean of a loss or a metric",
    )


def _exists(target: Target, path: str) -> bool:
    """Whether a release has the function; read from the source if the module cannot be imported."""
    return path.rpartition(".")[2] in defined_functions(target) if target.fails(path) else target.has(path)


def _value(target: Target) -> Iterator[Boundary]:
    own = {"values": Column("old_value"), "value_prediction": Column("value"), "value_clip": Knob("value_clip")}
    yield one_call(
        path=VALUE,
        stage="value-loss",
        call=VALUE,
        name="result",
        arguments=by_role(target.find(VALUE), {**ROLES, **own}),
        produced_by={"response_mask": MASK_PRODUCER},
        outputs={
            "loss": Output("", "", "loss", at=Use("result")[0]),
            CLIPPED: Output("", "", "value_clip_fraction", over="live", at=Use("result")[1], form=Detached()),
        },
        settings={"default": {"value_clip": 0.5}},
        claims=claims(HALVED, algorithm="clipped value", factor="half", aggregation="token-mean"),
        reach="algorithm.adv_estimator=gae",
    )


def aggregation(target: Target, mode: str) -> Claims:
    """The claims about a mode. The rows that a mean counts are claimed only if the source states them."""
    source = inspect.getsource(target.find(AGGREGATE)) if target.has(AGGREGATE) else ""
    claimed = claims(_MODES, aggregation=NAMES[mode])
    return claimed | (claims(_LIVE, rows="live") if "exclude fully masked sequences" in source else Claims())


def _entropy(target: Target) -> Iterator[Boundary]:
    takes = inspect.signature(target.find(ENTROPY)).parameters

    passed: dict[str, Codec] = {
        "logits": Column("logits"),
        "response_mask": MASK,
        "loss_agg_mode": Knob("loss_agg_mode"),
    }
    names = dict(zip(passed, takes, strict=False))
    arguments = {names[name]: codec for name, codec in passed.items() if name in names}
    listed = aggregations(target) if "loss_agg_mode" in takes else Claims()
    for mode in ("token-mean", "seq-mean-token-mean") if "loss_agg_mode" in takes else ("token-mean",):
        yield one_call(
            path=ENTROPY,
            stage="aggregate",
            call=ENTROPY,
            name="loss",
            arguments=arguments,
            produced_by={names["response_mask"]: MASK_PRODUCER},
            outputs={"loss": Output("", "nats", "entropy.mean", over="live", at=Use("loss"))},
            settings={mode: {"loss_agg_mode": mode}},
            claims=claims(_ENTROPY, algorithm="entropy")
            | aggregation(target, mode)
            | (listed if mode == "token-mean" else Claims()),
            reach="actor.entropy_coeff above 0",
        )


def _aggregations(target: Target) -> Iterator[Boundary]:
    function = target.find(AGGREGATE)
    source = inspect.getsource(function)
    fixed = "_norm" if "loss_scale_factor" in inspect.signature(function).parameters else ""
    for mode in MODES:
        if f'"{mode}"' not in source:
            continue

        width = mode.endswith("-norm")
        cite = f"core_algos.agg_loss: the horizon of the mask{fixed and ', where no scale factor is given'}"
        claimed = aggregation(target, mode) if fixed or not width else Claims()
        one = partial(_aggregated, target, mode, claimed)
        more: Mapping[str, Settings] = {f"{mode}, global": GLOBAL} if fixed else {}
        yield one({mode: {}, **more}, claims(cite, normalizer="width") if width else Claims())
        if width and fixed:
            yield one({f"{mode}, scale": {"scale": 6}}, Claims())
        if "dp_size" in inspect.signature(function).parameters:
            yield _in_parts(target, mode, claimed)


def _in_parts(target: Target, mode: str, claimed: Claims) -> Boundary:
    """The boundary of the losses of all micro-batches, summed per rank and averaged over ranks like the gradients."""
    names = list(inspect.signature(target.find(AGGREGATE)).parameters)
    width = mode.endswith("-norm")
    arguments: dict[str, Codec] = {
        names[0]: Column("advantage"),
        names[1]: MASK,
        **constants(loss_agg_mode=mode, **({"loss_scale_factor": 6} if width else {})),
        "dp_size": Derived(lambda inputs: inputs.layout.ranks, frozenset({"ranks"})),
        "batch_num_tokens": Derived(lambda inputs: int(inputs.mini_batch.mask.sum())),
        "global_batch_size": Derived(lambda inputs: inputs.mini_batch.rows),
    }
    return one_call(
        path=AGGREGATE,
        stage="aggregate",
        call=AGGREGATE,
        name="part",
        arguments=arguments,
        each=("rank", "micro_batch"),
        produced_by={names[1]: MASK_PRODUCER, "batch_num_tokens": _COUNTS},
        outputs={"loss": Output("", "", "loss", at=Use("part"), join="rank-mean")},
        settings={f"{mode}, in parts": {}},
        claims=(Claims() if width else claimed)
        | claims(_ROWS, rows="all")
        | claims(_COUNTS, denominator="given")
        | (Claims() if mode == "token-sum" else claims(_MODES, mean=True)),
        requires=(has_trained_token, equal_parts),
        reach=f"actor.loss_agg_mode={mode}",
    )


def _aggregated(target: Target, mode: str, claimed: Claims, settings: Mapping[str, Settings], more: Claims) -> Boundary:
    names = list(inspect.signature(target.find(AGGREGATE)).parameters)
    denominators: dict[str, Codec] = {PARAMETERS[name]: Knob(name) for name in next(iter(settings.values()))}
    if len(settings) > 1:
        denominators = {PARAMETERS[name]: Knob(name, default) for name, default in _DEFAULTS.items()}
    arguments = {
        names[0]: Column("advantage"),
        names[1]: MASK,
        **constants(loss_agg_mode=mode),
        **denominators,
    }
    return one_call(
        path=AGGREGATE,
        stage="aggregate",
        call=AGGREGATE,
        name="loss",
        arguments=arguments,
        produced_by={names[1]: MASK_PRODUCER},
        outputs={"loss": Output("", "", "loss", at=Use("loss"))},
        settings=settings,
        claims=claimed | more,
        reach=f"actor.loss_agg_mode={mode}",
    )
