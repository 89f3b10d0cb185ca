"""Boundaries of verl's Megatron actor before 0.8: its whole update, with a fake schedule and a fake model."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.value_codecs import Knob, constants
from rl_sentinel.adapters.process_group import parallel_state_of_one_process
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.actor import SECTION, required
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, POLICY_TENSORS
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.data_parallel import ACTOR as DATA_PARALLEL
from rl_sentinel.adapters.verl.data_parallel import update_of
from rl_sentinel.adapters.verl.engine import NUMBERS
from rl_sentinel.adapters.verl.fakes import ModelFake, run_update
from rl_sentinel.adapters.verl.worker_batch import (
    accelerator_fakes,
    dynamic_batch_size,
    reads_response_mask,
    update_sizes,
    worker_data,
    worker_object,
)
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

MODULE = "verl.workers.actor.megatron_actor"
ACTOR = f"{MODULE}.MegatronPPOActor"
UPDATE, ITERATE = f"{ACTOR}.update_policy", f"{ACTOR}.make_minibatch_iterator"
CONFIG, ENGINE = "verl.workers.config.McoreActorConfig", "verl.workers.config.McoreEngineConfig"

#: Factory of the forward function, in releases that have one.
FORWARD = "verl.models.mcore.get_mcore_forward_fn"

#: The update of a policy that samples at another temperature than 1.
TEMPERED: Mapping[str, Settings] = {"token-mean, temperature": {**NUMBERS, "temperature": 0.5}}

_PRODUCED = (
    f"{MASK_PRODUCER}; workers/megatron_workers.py, update_actor: an iterator over mini-batches of the batch; "
    "megatron_workers.py, compute_log_prob, or ray_trainer.py, fit: the temperature of the rollout in meta_info"
)


class MegatronFake(ModelFake):
    """A fake model chunk and optimizer; its logits are a log-prob and an entropy per position.

    Both numbers are of the policy at ``temperature``, multiplied by the temperature.
    """

    temperature = 1.0
    param_groups = ({"lr": 1.0},)  # some releases log the learning rate

    def step(self) -> Any:  # noqa: ANN401 - as Megatron's optimizer returns
        """Store the gradient; return success, a gradient norm of 0 and no zero gradients."""
        super().step()
        return True, 0.0, 0

    def zero_grad_buffer(self, **_about: object) -> None:
        """Do nothing: ``zero_grad`` clears the gradient."""

    def logits(self, input_ids: Tensor) -> Tensor:
        """``[b, S, 2]`` logits of the rows; the one-token prompt is the row index."""
        rows = input_ids[:, 0]
        answers = self.dropped(torch.stack([self.leaf[rows], self.answers["entropy"][rows]], dim=-1))
        return torch.nn.functional.pad(self.temperature * answers, (0, 0, 0, input_ids.shape[1] - answers.shape[1]))


def do_nothing(*_about: object, **_more: object) -> None:
    """Accept any arguments and do nothing."""


class SilentLogger:
    """A logger that discards all messages."""

    debug = info = warning = warning_once = error = staticmethod(do_nothing)


#: A disabled profiler, also for releases that call it without checking ``enable``.
PROFILER = SimpleNamespace(enable=False, **dict.fromkeys(("start", "step", "stop_and_save", "stop_trace"), do_nothing))


def megatron_actor(kind: Any, config: Any, answers: Mapping[str, Tensor]) -> Any:  # noqa: ANN401 - classes of the target
    """A verl actor with a fake model. The constructor is not run, because it needs Megatron."""
    fake, actor = MegatronFake(dict(answers)), object.__new__(kind)
    vars(actor).update(
        config=config,
        hf_config=SimpleNamespace(architectures=["LlamaForCausalLM"]),
        tf_config=SimpleNamespace(sequence_parallel=False, overlap_moe_expert_parallel_comm=False),
        model_config=SimpleNamespace(vocab_size=2),
        mtp_config=None,
        actor_module=[fake],
        actor_optimizer=fake,
        use_fused_kernels=False,
        use_torch_profiler=False,
        prof=PROFILER,
        router_replay=SimpleNamespace(mode="disabled"),
        enable_routing_replay=False,
        has_multi_modal_inputs=False,
        optimizer_step_args=None,
    )
    return actor


def run_minibatch_update(worker: Any, data: Any) -> dict[str, Any]:  # noqa: ANN401 - objects of the target
    """Run the update over the mini-batches of the worker; return metrics, and the losses of the last step."""
    worker.actor_optimizer.temperature = data.meta_info["temperature"]
    return run_update(lambda actor, batch: actor.update_policy(actor.make_minibatch_iterator(batch)), worker, data)


def schedule(forward_step_func: Any, data_iterator: Any, model: Any, num_microbatches: int, **about: Any) -> list[Any]:  # noqa: ANN401
    """Run all micro-batches, as Megatron's schedule without a pipeline does, and return the metrics of each.

    Without ``forward_only``, each loss divided by the number of micro-batches is backpropagated.
    """
    iterator = data_iterator[0] if isinstance(data_iterator, list) else data_iterator
    logged = []
    for _ in range(num_microbatches):
        output, loss_of = forward_step_func(iterator, model[0])
        loss, metrics = loss_of(output)[:2]
        logged.append(metrics)
        if not about.get("forward_only"):
            (loss / num_microbatches).backward()
    return logged


def forward(
    model: Any,  # noqa: ANN401 - the fake
    input_ids: Tensor,
    *_masks: object,
    logits_processor: Callable[..., Any] | None = None,
    logits_processor_args: Mapping[str, Any] | None = None,
    **_about: object,
) -> Any:  # noqa: ANN401 - logits, or the output of the processor
    """The forward pass of the model: its logits, passed through the actor's ``logits_processor``, if any."""
    logits = model.logits(input_ids)
    return logits if logits_processor is None else logits_processor(logits, **(logits_processor_args or {}))


def log_probs_in_place(logits: Tensor, _labels: object) -> Tensor:
    """Log-probs of the labels; overwrites the logits to save memory, as Megatron's cross entropy does."""
    answers = logits[..., 0].clone()
    with torch.no_grad():
        logits.zero_()
    return answers


class NoRouting:
    """A fake of the router replay of mixture-of-experts models; replay is off."""

    is_replay_backward_action = staticmethod(lambda *_about: False)
    is_replay_forward_action = staticmethod(lambda *_about: False)
    is_r2_record_action = staticmethod(lambda *_about: False)


def fakes_of(target: Target, source: str) -> dict[str, Callable[..., Any]]:
    """Fakes of Megatron, the model and the accelerator."""
    ours: dict[str, Callable[..., Any]] = {
        "get_forward_backward_func": lambda: schedule,
        "mpu": type("OneProcess", (), {n: staticmethod(f) for n, f in _parallel_state().items()}),
        "broadcast_dict_tensor": lambda *_tensors, **_about: None,
        "unwrap_model": lambda model: model,
        "get_torch_device": lambda: SimpleNamespace(empty_cache=lambda: None),
        "vocab_parallel_log_probs_from_logits": log_probs_in_place,
        "vocab_parallel_entropy": lambda logits: logits[..., 1].clone(),
        "RouterReplayHelper": NoRouting,
        "logger": SilentLogger,  # the real logger has a method that only transformers adds
    }
    present = {f"{MODULE}.{name}": fake for name, fake in ours.items() if target.has(f"{MODULE}.{name}")}
    return {**accelerator_fakes(target, MODULE, source), **present, FORWARD: lambda _config: forward}


def _parallel_state() -> Mapping[str, Callable[..., Any]]:
    return {**parallel_state_of_one_process(), "get_pipeline_model_parallel_last_rank": lambda *_about: 0}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the update, with a token mean and, in releases with modes, with a sequence mean."""
    if not target.has(UPDATE) or not target.has(ITERATE):
        return
    if why := target.fails(ACTOR):
        yield Unbound(UPDATE, "policy-loss", why)
        return
    try:
        source = inspect.getsource(target.find(ACTOR))
        target.find(FORWARD)
    except Unbindable as error:
        yield Unbound.because(UPDATE, "policy-loss", error)
        return
    modes = ("token-mean", "seq-mean-token-mean") if "loss_agg_mode" in source else ("token-mean",)
    yield from bindable(target, *(_update(target, mode, source) for mode in modes))


def _update(target: Target, mode: str, source: str) -> Boundary:
    # If the data-parallel worker reads a mask of trained tokens, the trainer passes it to this worker, too.
    sources = source + (inspect.getsource(target.find(DATA_PARALLEL)) if target.has(DATA_PARALLEL) else "")
    boundary = update_of(target, mode, source, masked=reads_response_mask(sources))
    # In such releases, tokens are untrained only in rollouts of several turns.
    turns = ", rollout.multi_turn.enable=True" if '"multi_turn"' in sources and not reads_response_mask(source) else ""
    outputs = {"log_probs": Column("logprob", leaf=True), "entropy": Column("entropy")}
    step = Step(
        call=run_minibatch_update,
        name="made",
        fakes=fakes_of(target, source),
        arguments={
            "worker": worker_object(megatron_actor, ACTOR, actor_config(target, mode, source), outputs),
            "data": worker_data(
                POLICY_TENSORS, temperature=Knob("temperature", default=1.0), **constants(multi_turn=True)
            ),
        },
        produced_by={"data": _PRODUCED},
    )
    return replace(
        boundary,
        path=f"{ITERATE} -> {UPDATE}",
        steps=(step, *boundary.steps[1:]),
        settings={**boundary.settings, **(TEMPERED if mode == "token-mean" else {})},
        reach=f"actor.strategy=megatron actor.use_kl_loss=True, every actor update{turns}",
    )


def actor_config(target: Target, mode: str, source: str) -> Codec:
    """The actor's configuration with an aggregation mode, in the form of the release."""
    numbers: dict[str, Codec] = {SECTION.get(name, name): Knob(name, number) for name, number in NUMBERS.items()}
    words = constants(use_kl_loss=True, kl_loss_type="low_var_kl", loss_agg_mode=mode, ppo_epochs=1, shuffle=False)
    fields: dict[str, Codec] = {
        **numbers,
        "clip_ratio": Knob("clip_low", NUMBERS["clip_low"]),
        **words,
        **update_sizes(source),
        **dynamic_batch_size(),
    }
    if not target.has(CONFIG):
        return default_config(target, "actor_rollout_ref.actor", fields, "ppo_megatron_trainer")
    return Object(CONFIG, {**required(target, CONFIG), **fields, "megatron": Object(ENGINE, {})}, shared=True)
