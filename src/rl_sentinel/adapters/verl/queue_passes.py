"""Boundary of the forward pass of verl's v1 trainer: log-probs and entropies of the rows of its queue."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.causal_model import CausalModel, model_of, with_prompt_tokens
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.engine_passes import (
    CONFIG,
    DYNAMIC,
    FAKES,
    HUGGING_FACE,
    LM_HEAD,
    WORKER,
    fsdp,
    log_prob_boundary,
)
from rl_sentinel.adapters.verl.queue_fakes import Queue, QueuedBatch, cut, padded
from rl_sentinel.adapters.verl.queue_trainer import BASE, MODULE, TRAINER
from rl_sentinel.adapters.verl.rollout_batch import POSITIONS, trainer_batch
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

PASS = f"{BASE}._compute_old_log_prob"

_ROLLOUT = "actor_rollout_ref.rollout"

#: The logged mean of the entropy.
ENTROPY = "actor/entropy"

_PRODUCED = (
    "v1/agent_loop_tq.py: input_ids, position_ids, responses, response_mask and loss_mask of each output, without "
    "padding; utils/transferqueue_utils.py, tqbridge: the worker's data are the rows of the queue and extra_info"
)

_LOGS = claims(
    "v1/trainer_base.py, _compute_old_log_prob: entropies by the actor's loss_agg_mode, by default token-mean",
    output_algorithms={ENTROPY: "mean entropy of trained tokens at the temperature"},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the actor's forward pass over packed sequences on FSDP."""
    if all(target.has(path) for path in (PASS, TRAINER, LM_HEAD, CONFIG, POSITIONS)) and not target.fails(TRAINER):
        yield from try_bind(target, PASS, "batch", lambda: [_log_probs(target)])


def fill_queue(batch: Mapping[str, Tensor], more: Mapping[str, Tensor]) -> QueuedBatch:
    """Put the rows of a padded batch into the queue, with ``more`` columns ``[B, T]`` of the responses."""
    width = batch["responses"].shape[1]
    inside = batch["attention_mask"].bool()
    lengths = inside[:, -width:].sum(1)
    columns = {
        name: [row[m] for row, m in zip(batch[name], inside, strict=True)] for name in ("input_ids", "position_ids")
    }
    own = {"response_mask": batch["response_mask"], "loss_mask": batch["response_mask"]}
    of_responses = {"responses": batch["responses"], **own, **more}
    columns |= {name: cut(column, lengths) for name, column in of_responses.items()}
    columns["prompts"] = [ids[: len(ids) - n] for ids, n in zip(columns["input_ids"], lengths.tolist(), strict=True)]
    keys = [f"prompt-{row}_0_0" for row in range(len(lengths))]
    Queue.fill(keys, columns)
    return QueuedBatch(keys, tags=[{} for _ in keys])


def data_of_queue(batch: QueuedBatch, about: Mapping[str, Any], assign: Callable[..., None]) -> Any:  # noqa: ANN401 - a TensorDict
    """The data that a worker gets for a batch of the queue: its rows, ``extra_info``, and defaults from ``about``."""
    data = Queue.kv_batch_get(batch.keys, batch.partition_id)
    assign(data, **{**about, **batch.extra_info})
    return data


def pass_of_queue(  # noqa: PLR0913 - what the trainer, the engine and the model have
    method: Callable[..., Any],
    owner: type,
    assign: Callable[..., None],
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    engine: Any,  # noqa: ANN401 - an engine of the target
    wrap: Callable[[CausalModel], Any],
    data: Any,  # noqa: ANN401 - a DataProto
    columns: Tensor,
    about: dict[str, Any],
) -> dict[str, Any]:
    """Run the trainer's forward pass over a queued batch; return the added columns and the logged entropy."""
    batch, width = data.batch, data.batch["responses"].shape[1]
    engine.module = wrap(model_of(batch["input_ids"], batch["attention_mask"], width, with_prompt_tokens(columns)))

    class Workers:
        """A fake worker group: it reads the queue, runs the engine and writes the engine's outputs to the queue."""

        @staticmethod
        def compute_log_prob(rows: QueuedBatch) -> QueuedBatch:
            output = engine.infer_batch(data_of_queue(rows, about, assign), loss_function=None)["model_output"]
            Queue.kv_batch_put(rows.keys, rows.partition_id, fields=output)
            return rows

    queued, metrics = fill_queue(batch, {}), dict[str, Any]()
    method(bare_instance(owner, config=config, actor_rollout_wg=Workers), queued, metrics)
    rows = [Queue.rows[key] for key in queued.keys]
    added = {"old_log_probs": "old_log_probs", "entropys": "entropy"}
    return {name: padded([row[own] for row in rows], width) for name, own in added.items()} | {
        ENTROPY: torch.tensor(metrics[ENTROPY])
    }


def _log_probs(target: Target) -> Boundary:
    rollout = {"temperature": Knob("temperature"), **constants(calculate_log_probs=False)}
    step = Step(
        call=pass_of_queue,
        name="passed",
        fakes={**present(target, FAKES), f"{MODULE}.tq": Queue},
        arguments={
            **functions(method=PASS, owner=TRAINER, assign="verl.utils.tensordict_utils.assign_non_tensor"),
            "config": default_config(target, "", {f"{_ROLLOUT}.{n}": x for n, x in rollout.items()}, resolved=True),
            "engine": fsdp(LM_HEAD),
            "wrap": HUGGING_FACE,
            "data": trainer_batch(Constant(1.0)),
            "columns": Column("logits"),
            "about": Table(WORKER),
        },
        produced_by={"data": _PRODUCED},
    )
    reach, settings = "trainer.use_v1=True (the default)", {"packed": DYNAMIC}
    one = log_prob_boundary(target, f"{PASS} -> {LM_HEAD}.forward_step", step, settings, reach, squares=False)
    entropy = Output("", "nats", over="live", at=Use("passed")[ENTROPY])
    return replace(one, unused=frozenset(), outputs={**one.outputs, ENTROPY: entropy}, claims=one.claims | _LOGS)
