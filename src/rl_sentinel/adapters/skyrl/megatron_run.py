"""Run SkyRL's policy worker on Megatron in one process, with a fake model, a fake schedule and fake ranks."""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, functions
from rl_sentinel.adapters.process_group import parallel_state_of_one_process
from rl_sentinel.adapters.skyrl.losses import REGISTRY
from rl_sentinel.adapters.skyrl.megatron_fakes import (
    Copies,
    Model,
    Steps,
    StoredLogProbs,
    stored_entropy,
    stored_log_probs,
)
from rl_sentinel.adapters.skyrl.worker_fakes import Bar, cpu
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.call import Function

_PLACE = "skyrl.backends.skyrl_train.workers.megatron"
WORKER = f"{_PLACE}.megatron_worker.MegatronPolicyWorkerBase"
WRAPPER = f"{_PLACE}.megatron_model_wrapper.MegatronModelWrapper"
#: The worker's method that trains on a mini-batch: STEP or, until January 2026, UPDATE.
STEP, UPDATE = f"{WORKER}.forward_backward", f"{WORKER}.ppo_train"
#: The worker's method for an optimizer step; an update makes its own ones.
APPLY = f"{WORKER}.optim_step"
_MODEL_STEP = "forward_backward_mini_batch"
MODEL_STEP = f"{WRAPPER}.{_MODEL_STEP}"
#: The wrapper's class until October 2025.
_FIRST_WRAPPER = f"{_PLACE}.megatron_policy.MegatronPPOPolicy"
#: The function that removes padding: its module has Megatron's parallel state as well.
PADDING = "skyrl.backends.skyrl_train.distributed.megatron.megatron_utils.remove_left_padding"
#: The function that clears replayed experts; it calls Megatron.
REPLAY = "skyrl.backends.skyrl_train.utils.replay_utils.clear_router_replay"


def run_on_megatron(  # noqa: PLR0913 - the target's code, and the arguments of the worker
    code: dict[str, Any],
    cfg: Any,  # noqa: ANN401 - the target's class
    model: Callable[..., Any],
    data: Any,  # noqa: ANN401 - the target's class
    parts: int,
    ranks: int,
    packed: bool = False,  # noqa: FBT001, FBT002 - as in the configuration
    loss_scale: float = 1.0,
    context: int = 1,
    requests: int = 1,
    steps: int = 1,
    **options: object,
) -> tuple[Tensor, list[Any]]:
    """Train a mini-batch on all ranks in ``parts`` micro-batches; return the loss, and each rank's result.

    The result of an update is the numbers that it logs. The fake of Megatron's schedule divides each loss by the number
    of micro-batches (schedules.py, forward_step: a loss function that returns two values). It then applies the scaling
    of the loss that the model's configuration names (backward_step). Gradients are averaged over the ranks, and the
    optimizer divides them by ``loss_scale``. ``code`` contains functions and classes of the target. With ``packed``,
    the worker removes padding, and the model's outputs are log-probs over a vocabulary.

    ``context`` ranks share each sequence: each computes the loss of the whole sequence, with the gradient of its own
    tokens. One of them runs here, on whole sequences, as if the others' log-probs were gathered. The schedule
    multiplies each loss by their number (schedules.py, forward_step_calc_loss), and gradients are averaged over them.

    One rank may get the mini-batch in several ``requests``; a loss that the worker has forgotten does not count.
    With several optimizer ``steps`` on the mini-batch, the loss is that of the last one: it has every loss since the
    worker last cleared the gradients.
    """
    total: list[Tensor] = []
    if requests > 1 or steps > 1:
        vars(model)["losses"] = total
    model_config = SimpleNamespace(grad_scale_func=None)

    def schedule(
        forward_step_func: Callable[..., Any],
        data_iterator: object,
        model: list[Callable[..., Any]],
        num_microbatches: int,
        **_more: object,
    ) -> list[dict[str, Any]]:
        reports = []
        for _ in range(num_microbatches):
            outputs, compute_loss = forward_step_func(data_iterator, model[0])
            loss, report = compute_loss(outputs)
            share = loss * context / num_microbatches
            scale = model_config.grad_scale_func
            total.append(share if scale is None else scale(share))
            reports.append(report)
        return reports

    def copies(*, with_context_parallel: bool = False, **_options: object) -> int:
        return context if with_context_parallel else 1

    cfg.trainer.micro_train_batch_size_per_gpu = data.batch_size // (parts * ranks)
    state = SimpleNamespace(**parallel_state_of_one_process())
    vars(state).update(
        get_data_parallel_world_size=lambda **options: ranks * copies(**options),
        get_data_parallel_group=copies,
        get_context_parallel_world_size=lambda: context,
        get_tensor_model_parallel_world_size=lambda **_options: code["tensor_parallel"],
        is_pipeline_first_stage=lambda **_options: True,
        get_pipeline_model_parallel_last_rank=lambda: 0,
    )
    fakes: dict[str, Any] = {
        "mpu": state,
        "get_forward_backward_func": lambda: schedule,
        "get_model_config": lambda _model: model_config,
        "from_parallel_logits_to_logprobs": stored_log_probs,
        "vocab_parallel_entropy": stored_entropy,
        "clear_router_replay": lambda: None,
        "PackedSeqParams": SimpleNamespace,
        "DistributedLogprob": StoredLogProbs,
        "tqdm": Bar,
    }
    one_stage = dict.fromkeys(("broadcast_object_list", "barrier"), lambda *_objects, **_options: None)
    names = ("step", "model_step", "padding", "replay", "packed_log_probs")
    modules = [code[name].__globals__ for name in names if code.get(name) is not None]
    whole = {"mpu": SimpleNamespace(**vars(state) | {"get_context_parallel_world_size": lambda: 1})}
    with (
        replaced_globals(*modules, **fakes),
        replaced_globals(code["padding"].__globals__, **whole),
        replaced_globals(vars(torch.distributed), **one_stage),
    ):
        worker = _worker(code, cfg, model, packed=packed, loss_scale=loss_scale)
        pieces = ranks * requests
        shares = data.chunk(data.batch_size // pieces) if pieces > 1 else [data]
        if steps > 1:
            worker.strategy = Steps(total)
        returned = [_step(code, worker, cfg, share, steps, options) for share in shares]
    loss = worker.strategy.applied if steps > 1 else torch.stack(total).sum()
    return loss / (ranks * context * loss_scale), returned


def _step(  # noqa: PLR0913 - the worker and what it gets
    code: dict[str, Any],
    worker: Any,  # noqa: ANN401 - the target's class
    cfg: Any,  # noqa: ANN401 - the target's class
    share: Any,  # noqa: ANN401 - the target's class
    steps: int,
    options: dict[str, object],
) -> Any:  # noqa: ANN401 - the target's class
    """The result of the step; if the step is an update, the numbers that it logs."""
    step = code["step"]
    if step.__name__ == "ppo_train":
        cfg.trainer.update_epochs_per_batch = steps
        worker.policy_mini_batch_size_per_gpu = share.batch_size
        return step(worker, share).metadata["train_status"]
    for _ in range(steps - 1):
        step(worker, share, **options)
        code["apply"](worker)
    returned = step(worker, share, **options)
    if steps > 1:
        code["apply"](worker)
    return returned


def _worker(
    code: dict[str, Any],
    cfg: Any,  # noqa: ANN401 - the target's class
    model: Callable[..., Any],
    *,
    packed: bool,
    loss_scale: float,
) -> Any:  # noqa: ANN401 - the target's class
    """A worker and its model wrapper, with a fake model, optimizer and strategy.

    The constructor of the wrapper runs if the optimizer scales the loss.
    """
    modules, section = [model], cfg.trainer if code["section"] else cfg
    loss = code["losses"].get(cfg.trainer.algorithm.policy_loss_type)
    if loss_scale == 1.0:
        wrapper = bare_instance(code["wrapper"], cfg=section, actor_module=modules, actor_optimizer=None)
    else:
        for name in ("remove_microbatch_padding", "use_sample_packing"):
            if hasattr(cfg.trainer, name):
                setattr(cfg.trainer, name, False)
        optimizer = SimpleNamespace(scale_loss=lambda loss: loss * loss_scale)
        known = inspect.signature(code["wrapper"]).parameters
        earlier = {name: SimpleNamespace() for name in ("hf_config", "tf_config") if name in known}
        wrapper = code["wrapper"](
            config=section, actor_module=modules, actor_optimizer=optimizer, policy_loss_fn=loss, **earlier
        )
    vars(wrapper).update(
        policy_loss_fn=loss,
        remove_microbatch_padding=packed,
        use_sample_packing=False,
        is_vlm=False,
        _fused_lm_head=False,
        tf_config=SimpleNamespace(sequence_parallel=False),
    )
    wrapper.train = wrapper.run_pending_grad_sync = lambda: None
    return bare_instance(
        code["worker"],
        cfg=section,
        model=wrapper,
        actor_module=modules,
        strategy=Copies(),
        optimizer=SimpleNamespace(param_groups=[{"lr": 0.0}], zero_grad=lambda: None),
        scheduler=None,
        profiler=None,
        empty_cuda_cache=False,
        enable_router_replay=False,
        _micro_batches_accumulated=0,
        is_vlm=False,
    )


def train_on_megatron(  # noqa: PLR0913 - the target's code, and the arguments of the worker
    code: dict[str, Any],
    cfg: Any,  # noqa: ANN401 - the target's class
    columns: dict[str, Tensor],
    data: Any,  # noqa: ANN401 - the target's class
    parts: int,
    ranks: int,
    loss_scale: float,
    context: int,
    requests: int,
    steps: int,
) -> dict[str, Any]:
    """Train a mini-batch on all ranks.

    Returns ``loss``: its loss; ``entropy`` and ``logged``: the entropy and the loss that the last rank logs; and
    ``logprobs``: the log-probs that the worker returns, by row.
    """
    model = Model(columns)
    counts = (context, requests, steps)
    loss, returned = run_on_megatron(code, cfg, model, data, parts, ranks, False, loss_scale, *counts)  # noqa: FBT003
    metrics = [getattr(one, "metrics", one) for one in returned]
    rows = [
        row
        for one, metric in zip(returned, metrics, strict=True)
        for row in getattr(one, "loss_fn_outputs", None) or metric.get("loss_fn_outputs", [])
    ]
    return {
        "loss": loss,
        "entropy": float(metrics[-1]["policy_entropy"]),
        "logged": float(metrics[-1].get("final_loss", metrics[-1].get("policy_loss", 0.0))),
        "logprobs": [torch.tensor(row["logprobs"]) for row in rows],
    }


def has_worker(target: Target) -> bool:
    """Whether the release has the worker, and it can be imported."""
    return all(target.has(path) and not target.fails(path) for path in (STEP, MODEL_STEP, PADDING))


def has_update(target: Target) -> bool:
    """Whether the release has the worker with an update, and it can be imported."""
    paths = (UPDATE, f"{wrapper_of(target)}.{_MODEL_STEP}", PADDING)
    return all(target.has(path) and not target.fails(path) for path in paths)


def step_of(target: Target) -> str:
    """The path of the worker's step."""
    return UPDATE if target.has(UPDATE) else STEP


def wrapper_of(target: Target) -> str:
    """The path of the wrapper's class."""
    return _FIRST_WRAPPER if not target.has(WRAPPER) and target.has(_FIRST_WRAPPER) else WRAPPER


def code_of(target: Target, packed_log_probs: str = "", tensor_parallel: int = 1) -> Table:
    """Functions and classes of the target that :func:`run_on_megatron` calls or replaces.

    ``packed_log_probs`` is the path of the log-probs of packed rows; ``tensor_parallel`` ranks share a sequence.
    """
    paths = {
        "step": step_of(target),
        "model_step": f"{wrapper_of(target)}.{_MODEL_STEP}",
        "padding": PADDING,
        "worker": WORKER,
        "wrapper": wrapper_of(target),
        "losses": REGISTRY,
    }
    replay = Constant(Function(REPLAY) if target.has(REPLAY) else None)
    whole = any("self.cfg.trainer." in inspect.getsource(target.find(paths[name])) for name in ("step", "model_step"))
    code = functions(**paths)
    if packed_log_probs:
        code["packed_log_probs"] = Constant(Function(packed_log_probs))
    if target.has(APPLY):
        code |= functions(apply=APPLY)
    sizes = {"tensor_parallel": Constant(tensor_parallel)}
    return Table({**code, **sizes, "replay": replay, "section": Constant(not whole)})


def device_fake(target: Target) -> dict[str, Callable[..., Any]]:
    """The CPU as the current device of the wrapper."""
    return {f"{target.locate(wrapper_of(target)).rpartition('.')[0]}.torch.cuda.current_device": cpu}
