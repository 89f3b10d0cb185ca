"""Boundaries of the forward passes of verl's engines: log-probs, entropies and values."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.binding import bindable, present
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.flash_attention import pad_input, unpad_input
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob, constants, functions, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, section
from rl_sentinel.adapters.verl.engine_fakes import (
    SEQUENCE_GROUP,
    FusedForward,
    HuggingFaceFake,
    PolicyOutput,
    SequenceRanks,
    fsdp_engine,
    pass_of_trainer,
)
from rl_sentinel.adapters.verl.fakes import cpu_device
from rl_sentinel.adapters.verl.micro_batches import splits_of_release
from rl_sentinel.adapters.verl.rollout_batch import POSITIONS, position_step, trainer_batch
from rl_sentinel.adapters.verl.worker_batch import MICRO_BATCH
from rl_sentinel.core.batch import Batch, take_positions, take_rows
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs, Sizes
from rl_sentinel.core.errors import Unbindable

TRAINER = "verl.trainer.ppo.ray_trainer.RayPPOTrainer"
LOG_PROBS, VALUES = f"{TRAINER}._compute_old_log_prob", f"{TRAINER}._compute_values"
ESTIMATE = "verl.trainer.ppo.ray_trainer.compute_advantage"
MODULE = "verl.workers.engine.fsdp.transformer_impl"
LM_HEAD, VALUE_HEAD = f"{MODULE}.FSDPEngineWithLMHead", f"{MODULE}.FSDPEngineWithValueHead"
CONFIG = "verl.workers.config.FSDPEngineConfig"
ULYSSES = "verl.utils.ulysses"

#: The function that replaces the forward pass of a model, and the module of the replacements for dense models.
CHOOSE = "verl.models.transformers.monkey_patch.patch_forward_with_backends"
DENSE = "verl.models.transformers.dense_common"

_CLAIMS = claims(
    "ray_trainer.py, _compute_old_log_prob: old_log_probs and entropys of the responses, in the rows of the batch; "
    "temperature of the rollout in meta_info",
    output_algorithms={
        "logprob": "log-prob of the token",
        "entropy": "entropy of the logits",
        "pi_squared": "sum of squared probabilities",
    },
)

DATA = (
    f"{MASK_PRODUCER}; agent_loop.py, _agent_loop_postprocess: prompts padded at the left, responses at the right, "
    "position ids of the attention mask; ray_trainer.py, fit: temperature in meta_info; engine_workers.py, "
    "infer_batch: padding and micro-batches of the configuration"
)

#: Settings of the pass: packed sequences in dynamic batches, padded ones in equal micro-batches.
DYNAMIC: Settings = {"temperature": 0.5, "use_remove_padding": True, "use_dynamic_bsz": True}
PADDED: Settings = {"temperature": 0.5, "use_remove_padding": False, "use_dynamic_bsz": False}

#: Packed sequences of which two ranks have a part each.
TWO_RANKS: Settings = {"temperature": 0.5, "use_remove_padding": True, "use_dynamic_bsz": False, "ranks": 2}

#: The same passes, with log-probs and entropies computed from hidden states in chunks, without logits.
FUSED: Mapping[str, Settings] = {
    name: {**settings, "use_fused_kernels": True}
    for name, settings in {"packed": DYNAMIC, "padded": PADDED, "sequence parallel": TWO_RANKS}.items()
}


#: The largest numbers of rows and of response tokens in a batch, since each takes time in a call.
ROWS, TOKENS = 4, 4


def prompts_differ(batch: Batch) -> Batch:
    """A few rows of the batch; if there are several, prompts have different lengths."""
    few = take_rows(batch, torch.arange(ROWS)) if batch.rows > ROWS else batch
    few = take_positions(few, torch.arange(TOKENS)) if few.width > TOKENS else few
    if few.rows < 2 or len(set(few.prompt_length.tolist())) > 1:
        return few
    return replace(few, prompt_length=few.prompt_length + torch.arange(few.rows) % 3)


def _longest(inputs: Inputs) -> int:
    """The token limit: the tokens of two rows, so that dynamic batches change the order of the rows."""
    return 2 * int((inputs.batch.prompt_length + inputs.batch.length).max())


#: Defaults that the worker adds to the data.
WORKER: Mapping[str, Codec] = {
    **knobs("use_remove_padding", "use_dynamic_bsz"),
    "max_token_len_per_gpu": Derived(_longest),
    "micro_batch_size_per_gpu": MICRO_BATCH,
    "use_fused_kernels": Knob("use_fused_kernels", default=False),
}

#: Makes the model that the engine calls.
HUGGING_FACE = Constant(HuggingFaceFake)

#: Number of ranks that share each sequence.
RANKS = Knob("ranks", default=1)

#: Fakes for kernels that need a GPU, in releases that have no alternative.
KERNELS: Mapping[str, Callable[..., Any]] = {
    "verl.workers.utils.padding.unpad_input": unpad_input,
    "verl.workers.utils.padding.pad_input": pad_input,
    "verl.utils.seqlen_balancing.get_device_name": cpu_device,
}

#: Fakes for devices and for the collectives of the ranks that share sequences.
FAKES: Mapping[str, Callable[..., Any]] = {
    **KERNELS,
    f"{MODULE}.get_device_id": cpu_device,
    f"{MODULE}.get_device_name": cpu_device,
    f"{ULYSSES}.dist": SequenceRanks,
    f"{ULYSSES}.get_ulysses_sequence_parallel_group": lambda: SEQUENCE_GROUP,
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the forward passes of actor and critic on FSDP."""
    for method, engine, make in ((LOG_PROBS, LM_HEAD, _log_probs), (VALUES, VALUE_HEAD, _values)):
        path = f"{method} -> {engine}.forward_step"
        if not target.has(method) or not target.has(engine):
            continue
        try:
            for needed in (method, engine, CONFIG, ULYSSES, POSITIONS):
                target.find(needed)
        except Unbindable as why:
            yield Unbound.because(path, "batch", why)
            continue
        yield from bindable(target, *make(target, path))
        if method == LOG_PROBS:
            yield from _fused(target)


def fsdp(kind: str) -> Object:
    """An engine on FSDP."""
    numbers = {**constants(use_torch_compile=False), "ulysses_sequence_parallel_size": RANKS}
    parts = {
        "kind": Constant(Function(kind)),
        "config": Object(CONFIG, numbers),
        "use_remove_padding": Knob("use_remove_padding"),
    }
    return Object(fsdp_engine, parts, at={"config": "engine_config"})


def trainer_step(  # noqa: PLR0913 - the parts in which the passes differ
    method: str,
    engine: Codec,
    columns: str,
    *,
    wrap: Codec = HUGGING_FACE,
    squares: bool = True,
    more: Mapping[str, Codec] | None = None,
    fakes: Mapping[str, Callable[..., Any]],
) -> Step:
    """The step that runs a method of the trainer with an engine; the model returns ``columns``.

    ``wrap`` makes the model that the engine calls. ``squares`` requests sums of squared probabilities. ``more`` has
    further arguments of the call.
    """
    about = constants(calculate_sum_pi_squared=squares)
    config = section({"actor_rollout_ref": Table({"actor": Table(about)})}, shared=True)
    return Step(
        call=pass_of_trainer,
        name="passed",
        fakes=fakes,
        arguments={
            **functions(method=method, owner=TRAINER),
            "config": config,
            "engine": engine,
            "wrap": wrap,
            "data": trainer_batch(Knob("temperature")),
            "columns": Column(columns),
            "about": Table(WORKER),
            "ranks": RANKS,
            **(more or {}),
        },
        produced_by={"data": DATA},
    )


def log_prob_boundary(  # noqa: PLR0913 - the parts in which the passes differ
    target: Target,
    path: str,
    step: Step,
    settings: Mapping[str, Settings],
    reach: str,
    *,
    squares: bool = True,
    entropy: str = "entropys",
) -> Boundary:
    """The boundary of a forward pass that returns log-probs and entropies."""
    places = {"logprob": "old_log_probs", "entropy": entropy}
    if squares and "sum_pi_squared" in inspect.getsource(target.find(LOG_PROBS)):
        places["pi_squared"] = "sum_pi_squared"
    return Boundary(
        path=path,
        stage="batch",
        steps=(position_step(), step),
        unused=frozenset({"mask"}),
        outputs={
            name: Output("B T", "" if name == "pi_squared" else "nats", name, at=Use("passed")[place], form=Padded())
            for name, place in places.items()
        },
        settings=splits_of_release(target, settings),
        claims=_CLAIMS,
        reach=f"every training step, rollout.temperature; {reach}",
        requires=(no_empty_response, equal_micro_batches),
        domain=prompts_differ,
    )


@dataclass(frozen=True, slots=True)
class PerToken(Padded):
    """A tensor ``[B, T]``, or ``[B, T, 1]`` from a head with one output.

    The next step of the trainer shows whether the trainer accepts it.
    """

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """One number per token, ``[B, T]``."""
        return Padded.read(self, value.squeeze(-1) if value.dim() > 2 else value, sizes)

    @override
    def source(self, expression: str, sizes: Sizes) -> str:
        return Padded.source(self, f"{expression}.flatten(1)", sizes)


def value_step(target: Target, engine: Codec, wrap: Codec, fakes: Mapping[str, Callable[..., Any]]) -> Step:
    """The step of the critic's forward pass. The trainer passes the values to GAE."""
    more = {"estimate": Constant(Function(ESTIMATE))} if target.has(ESTIMATE) else {}
    return trainer_step(VALUES, engine, "value", wrap=wrap, more=more, fakes=fakes)


def value_boundary(path: str, step: Step, settings: Mapping[str, Settings], reach: str) -> Boundary:
    """The boundary of the critic's pass."""
    return Boundary(
        path=path,
        stage="batch",
        steps=(position_step(), step),
        unused=frozenset({"mask", "token"}),
        outputs={"value": Output("B T", "reward", "value", at=Use("passed")["values"], form=PerToken())},
        settings=settings,
        claims=claims("ray_trainer.py, _compute_values: values of the responses", conserves=True),
        reach=f"algorithm.adv_estimator=gae, every training step; {reach}",
        requires=(no_empty_response, equal_micro_batches),
        domain=prompts_differ,
    )


def _log_probs(target: Target, path: str) -> Iterator[Boundary]:
    settings = {"packed": DYNAMIC, "padded": PADDED, "sequence parallel": TWO_RANKS}
    step = trainer_step(LOG_PROBS, fsdp(LM_HEAD), "logits", fakes=present(target, FAKES))
    reach = "padded: model.use_remove_padding=False; sequence parallel: actor.ulysses_sequence_parallel_size=2"
    yield log_prob_boundary(target, path, step, settings, reach)


def _fused(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the actor's forward pass with fused kernels, if the release has them for dense models."""
    path = f"{LOG_PROBS} -> {LM_HEAD}.forward_step -> {DENSE}.forward_with_torch_backend"
    if not target.has(CHOOSE) or not target.has(f"{DENSE}.forward_with_torch_backend"):
        return
    if why := target.fails(CHOOSE) or target.fails(DENSE):
        yield Unbound(path, "batch", why)
        return
    wrap = Object(FusedForward, {"choose": Constant(Function(CHOOSE)), "backend": Constant("torch")})
    fakes = {**FAKES, f"{DENSE}.CausalLMOutputForPPO": PolicyOutput}
    step = trainer_step(LOG_PROBS, fsdp(LM_HEAD), "logits", wrap=wrap, squares=False, fakes=present(target, fakes))
    reach = (
        "model.use_fused_kernels=True, model.fused_kernel_options.impl_backend=torch; padded: "
        "model.use_remove_padding=False; sequence parallel: actor.ulysses_sequence_parallel_size=2"
    )
    yield from bindable(target, log_prob_boundary(target, path, step, FUSED, reach, squares=False))


def _values(target: Target, path: str) -> Iterator[Boundary]:
    step = value_step(target, fsdp(VALUE_HEAD), HUGGING_FACE, present(target, FAKES))
    yield value_boundary(
        path, step, splits_of_release(target, {"padded": PADDED}), "critic.model.use_remove_padding=False"
    )
