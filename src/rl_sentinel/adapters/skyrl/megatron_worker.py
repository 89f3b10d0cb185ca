"""SkyRL's policy worker on Megatron: loss, metrics and log-probs of a mini-batch that it trains in micro-batches."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import equal_parts, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, Width
from rl_sentinel.adapters.process_group import parallel_state_of_one_process
from rl_sentinel.adapters.skyrl.arguments import CONFIG, PRODUCED_BY, Arguments, all_ones, arguments
from rl_sentinel.adapters.skyrl.loss_modes import MODES
from rl_sentinel.adapters.skyrl.losses import PLAIN, REGISTRY, SCALE, WHOLE, scaling
from rl_sentinel.adapters.skyrl.worker import BATCH_COLUMNS, ENTROPY, MODEL_COLUMNS, ROWS, Strategy, row_numbers
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Stage, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

_PLACE = "skyrl.backends.skyrl_train.workers.megatron"
WORKER = f"{_PLACE}.megatron_worker.MegatronPolicyWorkerBase"
WRAPPER = f"{_PLACE}.megatron_model_wrapper.MegatronModelWrapper"
STEP = f"{WORKER}.forward_backward"
MODEL_STEP = f"{WRAPPER}.forward_backward_mini_batch"
#: The module that removes and recovers padding; it has Megatron's parallel state as well.
PADDING = "skyrl.backends.skyrl_train.distributed.megatron.megatron_utils"
#: The function that forgets replayed experts; it asks Megatron.
REPLAY = "skyrl.backends.skyrl_train.utils.replay_utils.clear_router_replay"

#: Number of data-parallel ranks, and the rows of a micro-batch on one of them.
RANKS = Derived(lambda inputs: inputs.layout.ranks, frozenset({"ranks"}))
MICRO_BATCH_ROWS_OF_RANK = Derived(
    lambda inputs: inputs.batch.rows // (inputs.layout.micro_batches * inputs.layout.ranks),
    frozenset({"micro_batches"}),
)

_ALGORITHM = "trainer.algorithm"
_KL: Mapping[str, Settings] = {"alone": {"kl": False}, "with KL": {"kl": True}}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The loss, the logged metrics, and the returned log-probs."""
    if any(not target.has(path) or target.fails(path) for path in (STEP, MODEL_STEP, PADDING)):
        return
    try:
        forms = arguments(target)
        yield from bindable(target, *_step_boundaries(target, forms))
    except Unbindable as why:
        yield Unbound(STEP, "policy-loss", str(why))


class Model:
    """A double of the model on one pipeline stage: its output at a place is the next token's log-prob and the entropy.

    It looks up the columns of a row, whose number is the row's first token.
    """

    def __init__(self, columns: dict[str, Tensor]) -> None:
        """Store the columns of all rows, in the trainer's layout."""
        self.columns = columns

    def __call__(self, sequences: Tensor, *_inputs: object, **_options: object) -> Tensor:
        """The output at every position, ``[B, S, 2]``."""
        whole = [torch.nn.functional.pad(self.columns[name], (0, 1), value=9.0) for name in ("logprob", "entropy")]
        return torch.stack(whole, -1)[sequences[:, 0]]

    def train(self) -> None:
        """Do nothing."""

    def zero_grad_buffer(self) -> None:
        """Do nothing."""


def stored_log_probs(outputs: Tensor, *_tokens: object, **_options: object) -> Tensor:
    """A double of the log-probs of whole sequences, from the outputs of :class:`Model`."""
    return outputs[:, :-1, 0]


def stored_entropy(outputs: Tensor, **_options: object) -> Tensor:
    """A double of the entropy of logits, from the outputs of :class:`Model`."""
    return outputs[..., 1]


def train_on_megatron(  # noqa: PLR0913 - functions and classes of the target, and the arguments of the worker
    step: Callable[..., Any],
    model_step: Callable[..., Any],
    padding: Callable[..., Any],
    replay: Callable[..., Any] | None,
    worker: type,
    wrapper: type,
    losses: Any,  # noqa: ANN401 - the target's registry
    cfg: Any,  # noqa: ANN401 - the target's class
    columns: dict[str, Tensor],
    data: Any,  # noqa: ANN401 - the target's class
    parts: int,
    ranks: int,
) -> dict[str, Any]:
    """Run the worker's step over a mini-batch, on each rank in ``parts`` micro-batches: loss, entropy and log-probs.

    The double of Megatron's schedule divides each loss by the number of micro-batches (schedules.py, forward_step: a
    loss function that returns two values); gradients are averaged over the ranks. The entropy is that of the last rank.
    """
    total: list[Tensor] = []

    def schedule(
        forward_step_func: Callable[..., Any],
        data_iterator: object,
        model: list[Model],
        num_microbatches: int,
        **_more: object,
    ) -> list[dict[str, Any]]:
        reports = []
        for _ in range(num_microbatches):
            outputs, compute_loss = forward_step_func(data_iterator, model[0])
            loss, report = compute_loss(outputs)
            total.append(loss / num_microbatches)
            reports.append(report)
        return reports

    cfg.trainer.micro_train_batch_size_per_gpu = data.batch_size // (parts * ranks)
    model = [Model(columns)]
    policy_loss = losses.get(cfg.trainer.algorithm.policy_loss_type)
    bare_model = bare_instance(
        wrapper,
        cfg=cfg.trainer,
        actor_module=model,
        actor_optimizer=None,
        policy_loss_fn=policy_loss,
        remove_microbatch_padding=False,
        use_sample_packing=False,
        is_vlm=False,
        _fused_lm_head=False,
    )
    bare_model.train = model[0].train
    bare_worker = bare_instance(
        worker,
        cfg=cfg.trainer,
        model=bare_model,
        actor_module=model,
        strategy=Strategy(),
        optimizer=SimpleNamespace(param_groups=[{"lr": 0.0}]),
        empty_cuda_cache=False,
        enable_router_replay=False,
        is_vlm=False,
    )
    state = SimpleNamespace(**parallel_state_of_one_process())
    vars(state).update(
        get_data_parallel_world_size=lambda **_options: ranks,
        is_pipeline_first_stage=lambda **_options: True,
        get_pipeline_model_parallel_last_rank=lambda: 0,
    )
    doubles: dict[str, Any] = {
        "mpu": state,
        "get_forward_backward_func": lambda: schedule,
        "get_model_config": lambda _model: SimpleNamespace(),
        "from_parallel_logits_to_logprobs": stored_log_probs,
        "vocab_parallel_entropy": stored_entropy,
        "clear_router_replay": lambda: None,
    }
    one_stage = {"broadcast_object_list": lambda *_objects, **_options: None}
    modules = [function.__globals__ for function in (step, model_step, padding, replay) if function is not None]
    with replaced_globals(*modules, **doubles), replaced_globals(vars(torch.distributed), **one_stage):
        returned = [step(bare_worker, one) for one in (data.chunk(data.batch_size // ranks) if ranks > 1 else [data])]
    metrics = [getattr(one, "metrics", one) for one in returned]
    rows = [
        row
        for one, own in zip(returned, metrics, strict=True)
        for row in getattr(one, "loss_fn_outputs", None) or own.get("loss_fn_outputs", [])
    ]
    return {
        "loss": torch.stack(total).sum() / ranks,
        "entropy": float(metrics[-1]["policy_entropy"]),
        "logprobs": [torch.tensor(row["logprobs"]) for row in rows],
    }


def _step_boundaries(target: Target, forms: Arguments) -> Iterator[Boundary]:
    trained = Use("trained")
    for kl, knobs in _KL.items():
        for reduction in ("token_mean", "sequence_mean"):
            settings: Settings = {"loss_reduction": reduction, **knobs}
            claimed = (MODES[PLAIN].claims if kl == "alone" else Claims()) | WHOLE
            loss = {"loss": Output("", "", "loss", at=trained["loss"])}
            boundary = _boundary(target, forms, "policy-loss", loss, {f"{kl}, {reduction}": settings}, claimed)
            yield boundary if kl == "with KL" else replace(boundary, unused=boundary.unused | {"ref_logprob"})
    logged: Settings = {"loss_reduction": "token_mean", "kl": False}
    entropy = {"policy_entropy": Output("", "nats", "entropy.mean", over="live", at=trained["entropy"])}
    read = frozenset({"entropy", "mask", "length"})
    yield _boundary(target, forms, "metric", entropy, {"metrics": logged}, claims(ENTROPY), read)
    if "loss_fn_outputs" in inspect.getsource(target.find(STEP)):
        rows = {"logprob": Output("B T", "nats", "logprob", at=trained["logprobs"], form=Ragged())}
        yield _boundary(target, forms, "batch", rows, {"outputs": logged}, ROWS, frozenset({"logprob", "length"}))


def _boundary(  # noqa: PLR0913 - the parts in which the boundaries differ
    target: Target,
    forms: Arguments,
    stage: Stage,
    outputs: Mapping[str, Output],
    settings: Mapping[str, Settings],
    claimed: Claims,
    reads: frozenset[str] = frozenset(),
) -> Boundary:
    scales = target.has(SCALE)
    columns: dict[str, Codec] = {key: forms.column(name) for key, name in BATCH_COLUMNS.items()}
    if scales:
        columns["advantages"] = Earlier(Use("scaled"))
    tensors: dict[str, Codec] = {
        "sequences": Derived(row_numbers, frozenset({"extra"})),
        "attention_mask": Derived(all_ones, frozenset({"extra"})),
        "loss_mask": forms.loss_mask,
        "response_mask": forms.response_mask,
        "values": Constant(None),
        "returns": Constant(None),
        **columns,
    }
    knobs = {f"{_ALGORITHM}.loss_reduction": "loss_reduction", f"{_ALGORITHM}.use_kl_loss": "kl"}
    place = target.locate(WRAPPER).rpartition(".")[0]
    functions = {"step": STEP, "model_step": MODEL_STEP, "padding": f"{PADDING}.remove_left_padding"}
    classes = {"worker": WORKER, "wrapper": WRAPPER, "losses": REGISTRY}
    step = Step(
        call=train_on_megatron,
        name="trained",
        arguments={
            **{name: Constant(Function(path)) for name, path in (functions | classes).items()},
            "replay": Constant(Function(REPLAY) if target.has(REPLAY) else None),
            "cfg": Config(CONFIG, {f"{_ALGORITHM}.policy_loss_type": PLAIN}, knobs),
            "columns": Table({name: forms.column(name) for name in MODEL_COLUMNS}),
            "data": forms.batch(tensors, {"response_length": Width()}),
            "parts": MICRO_BATCHES,
            "ranks": RANKS if stage == "policy-loss" else Constant(1),
        },
        doubles={f"{place}.torch.cuda.current_device": cpu},
        produced_by={"data": PRODUCED_BY},
    )
    path = f"{STEP} -> {MODEL_STEP}"
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


def cpu(*_args: object) -> str:
    """The CPU as the current device."""
    return "cpu"
