"""SkyRL's policy worker on Megatron: loss, metrics and log-probs of a mini-batch, split into micro-batches."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.requirements import equal_parts, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob, Width
from rl_sentinel.adapters.skyrl.arguments import CONFIG, PRODUCED_BY, Arguments, arguments
from rl_sentinel.adapters.skyrl.losses import PLAIN, SCALE, scaling
from rl_sentinel.adapters.skyrl.megatron_run import (
    APPLY,
    STEP,
    UPDATE,
    code_of,
    device_fake,
    has_update,
    has_worker,
    step_of,
    train_on_megatron,
    wrapper_of,
)
from rl_sentinel.adapters.skyrl.worker import (
    ENTROPY,
    MODEL_COLUMNS,
    REGULARIZED,
    ROWS,
    knobs_of,
    loss_claims,
    training_tensors,
)
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Stage, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import Unbindable

#: Number of data-parallel ranks, of ranks that share each sequence, and the rows of a micro-batch on one of them.
RANKS = Derived(lambda inputs: inputs.layout.ranks, frozenset({"ranks"}))
CONTEXT = Derived(lambda inputs: inputs.layout.context, frozenset({"context"}))
MICRO_BATCH_ROWS_OF_RANK = Derived(
    lambda inputs: inputs.batch.rows // (inputs.layout.micro_batches * inputs.layout.ranks),
    frozenset({"micro_batches"}),
)

_ALGORITHM = "trainer.algorithm"

#: The server for clients of Tinker.
TINKER = "skyrl.backends.skyrl_train_backend.SkyRLTrainBackend"

#: In the names of settings: ranks share each sequence.
SHARED = "context parallel"

#: The scale of the loss without a setting, and another one.
_LOSS_SCALES = (1.0, 8.0)
_SCALING = "trainer.strategy=megatron; an optimizer with a loss scale (float16, or optimizer_config_kwargs.loss_scale)"
_REQUESTS = (
    "the Tinker server with trainer.strategy=megatron, and a client that divides a forward_backward into several "
    "requests before optim_step, as tinker's TrainingClient does with large ones"
)
#: The number of optimizer steps without a setting, and another one.
_STEPS = (1, 2)
_AGAIN = "trainer.strategy=megatron; a second optimizer step, as with trainer.update_epochs_per_batch=2"
_SCALED = claims(
    "Megatron-LM, optimizer_config.py, loss_scale: multiplies the loss; the optimizer divides gradients by it",
    inert={"loss_scale": _LOSS_SCALES},
)
_APPLIED = claims(
    "configuration, trainer.policy_mini_batch_size: one optimizer step for each mini-batch, whose gradients it applies",
    inert={"steps": _STEPS},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss, the logged metrics, and the returned log-probs."""
    if not has_worker(target) and not has_update(target):
        return
    try:
        forms = arguments(target)
        yield from bindable(target, *_step_boundaries(target, forms))
    except Unbindable as why:
        yield Unbound.because(STEP, "policy-loss", why)


def _step_boundaries(target: Target, forms: Arguments) -> Iterator[Boundary]:
    trained = Use("trained")
    plain: Settings = {"loss_reduction": "token_mean", "kl": False}
    with_kl: Settings = {"loss_reduction": "sequence_mean", "kl": True, **REGULARIZED}
    loss = {"loss": Output("", "", "loss", at=trained["loss"])}
    logged = {"logged loss": Output("", "", over="live", at=trained["logged"])}
    for name, settings, kl in (("alone, token_mean", plain, False), ("with KL, sequence_mean", with_kl, True)):
        claimed = loss_claims(kl=kl, regularized=kl)
        boundary = _boundary(target, forms, "policy-loss", loss, {name: settings}, claimed)
        unused = boundary.unused if kl else boundary.unused | {"ref_logprob"}
        yield replace(boundary, unused=unused)
        shared = _boundary(target, forms, "parallel", {**loss, **logged}, {f"{name}, {SHARED}": settings}, Claims())
        yield replace(shared, unused=unused, reach="trainer.strategy=megatron; context_parallel_size above 1")
    if target.has(TINKER):
        pieces: Mapping[str, Settings] = {"requests, token_mean": plain}
        boundary = _boundary(target, forms, "policy-loss", loss, pieces, loss_claims(kl=False, regularized=False))
        yield replace(boundary, unused=boundary.unused | {"ref_logprob"}, reach=_REQUESTS)
    if step_of(target) == UPDATE or target.has(APPLY):
        again: Mapping[str, Settings] = {"second step, token_mean": {**plain, "steps": _STEPS[1]}}
        claimed = loss_claims(kl=False, regularized=False) | _APPLIED
        boundary = _boundary(target, forms, "policy-loss", loss, again, claimed)
        yield replace(boundary, unused=boundary.unused | {"ref_logprob"}, reach=_AGAIN)
    if "actor_optimizer" in inspect.signature(target.find(wrapper_of(target))).parameters:
        scaled: Mapping[str, Settings] = {"with loss scale, token_mean": {**plain, "loss_scale": _LOSS_SCALES[1]}}
        claimed = loss_claims(kl=False, regularized=False) | _SCALED
        boundary = _boundary(target, forms, "policy-loss", loss, scaled, claimed)
        yield replace(boundary, unused=boundary.unused | {"ref_logprob"}, reach=_SCALING)
    entropy = {"policy_entropy": Output("", "nats", "entropy.mean", over="live", at=trained["entropy"])}
    read = frozenset({"entropy", "mask", "length"})
    yield _boundary(target, forms, "metric", entropy, {"metrics": plain}, claims(ENTROPY), read)
    if "loss_fn_outputs" in inspect.getsource(target.find(step_of(target))):
        rows = {"logprob": Output("B T", "nats", "logprob", at=trained["logprobs"], form=Ragged())}
        yield _boundary(target, forms, "batch", rows, {"outputs": plain}, ROWS, frozenset({"logprob", "length"}))


def _boundary(  # noqa: PLR0913 - the parts in which the boundaries differ
    target: Target,
    forms: Arguments,
    stage: Stage,
    outputs: Mapping[str, Output],
    settings: Mapping[str, Settings],
    claimed: Claims,
    reads: frozenset[str] = frozenset(),
) -> Boundary:
    scales, tensors = target.has(SCALE), training_tensors(target, forms)
    scales_loss = any("loss_scale" in one for one in settings.values())
    by_request = any("requests" in name for name in settings)
    repeats = any("steps" in one for one in settings.values())
    step = Step(
        call=train_on_megatron,
        name="trained",
        arguments={
            "code": code_of(target),
            "cfg": Config(CONFIG, {f"{_ALGORITHM}.policy_loss_type": PLAIN}, knobs_of(settings)),
            "columns": Table({name: forms.column(name) for name in MODEL_COLUMNS}),
            "data": forms.batch(tensors, {"response_length": Width()}),
            "parts": MICRO_BATCHES,
            "context": CONTEXT if stage == "parallel" else Constant(1),
            "ranks": RANKS if stage == "policy-loss" and not by_request and not repeats else Constant(1),
            "requests": MICRO_BATCHES if by_request else Constant(1),
            "steps": Knob("steps") if repeats else Constant(_STEPS[0]),
            "loss_scale": Knob("loss_scale") if scales_loss else Constant(_LOSS_SCALES[0]),
        },
        fakes=device_fake(target),
        produced_by={"data": PRODUCED_BY},
    )
    path = f"{step_of(target)} -> {wrapper_of(target)}.forward_backward_mini_batch"
    return Boundary(
        path=f"{SCALE} -> {path}" if scales else path,
        stage=stage,
        steps=(scaling(forms, MICRO_BATCH_ROWS_OF_RANK), step) if scales else (step,),
        reads=reads,
        unused=frozenset({"rollout_logprob", "entropy", "length"}),
        outputs=outputs,
        settings=settings,
        claims=claimed,
        reach="trainer.strategy=megatron; trainer.micro_train_batch_size_per_gpu below the rows of a mini-batch",
        requires=(equal_parts, has_trained_token, *((no_empty_response,) if stage == "batch" else ())),
    )
