"""Boundaries of the forward passes of verl's workers of October and November 2025."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.causal_model import CausalModel, model_of, with_prompt_tokens
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.flash_attention import pad_input, unpad_input
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.engine_passes import (
    CONFIG,
    DATA,
    DOUBLES,
    DYNAMIC,
    HUGGING_FACE,
    LM_HEAD,
    PADDED,
    RANKS,
    TWO_RANKS,
    ULYSSES,
    VALUE_HEAD,
    WORKER,
    fsdp,
    log_prob_boundary,
    present,
    value_boundary,
)
from rl_sentinel.adapters.verl.rollout_batch import POSITIONS, trainer_batch
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import Unbindable

LOG_PROBS = "verl.workers.roles.actor.ActorWorker.compute_log_prob"
VALUES = "verl.workers.roles.critic.CriticWorker.compute_values"

#: The function of the worker's module that packs a padded batch.
UNPAD = "left_right_2_no_padding"

#: Equal micro-batches are left out: their split of nested tensors is refused by torch.
_DYNAMIC: Settings = {"use_dynamic_bsz": True}
_SETTINGS: Mapping[str, Settings] = {"packed": DYNAMIC, "padded": {**PADDED, **_DYNAMIC}}

#: Setting of the data -> names of it in the configuration of a worker.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "max_token_len_per_gpu": ("ppo_infer_max_token_len_per_gpu", "ppo_max_token_len_per_gpu"),
    "micro_batch_size_per_gpu": ("ppo_infer_micro_batch_size_per_gpu", "ppo_micro_batch_size_per_gpu"),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The passes of actor and critic on FSDP."""
    for method, engine, make in ((LOG_PROBS, LM_HEAD, _log_probs), (VALUES, VALUE_HEAD, _values)):
        if not all(target.has(name) for name in (method, engine, f"{method.rsplit('.', 2)[0]}.{UNPAD}")):
            continue  # before October 2025 the engine took padded batches
        path = f"{method} -> {engine}.forward_step"
        try:
            for needed in (method, engine, CONFIG, ULYSSES, POSITIONS):
                target.find(needed)
        except Unbindable as why:
            yield Unbound(path, "batch", str(why))
            continue
        yield from bindable(target, make(target, path))


def pass_of_worker(  # noqa: PLR0913 - what the worker, the engine and the model have
    method: Callable[..., Any],
    owner: type,
    engine: Any,  # noqa: ANN401 - an engine of this module
    wrap: Callable[[CausalModel], Any],
    data: Any,  # noqa: ANN401 - a DataProto
    columns: Tensor,
    about: dict[str, Any],
    ranks: int,
) -> Any:  # noqa: ANN401 - tensors of a DataProto
    """Run the worker's pass over a batch, with a model that returns ``columns``; return the result of rank 0."""
    batch = data.batch
    answers = with_prompt_tokens(columns) if columns.dim() > 2 else columns.unsqueeze(-1)
    engine.module = wrap(model_of(batch["input_ids"], batch["attention_mask"], batch["responses"].shape[1], answers))
    config = SimpleNamespace(**{name: x for known, x in about.items() for name in _NAMES.get(known, (known,))})
    data.meta_info["use_remove_padding"] = about["use_remove_padding"]

    def work(_rank: int) -> Any:  # noqa: ANN401 - a DataProto
        return method(bare_instance(owner, config=config, engine=engine), copy.copy(data))

    padding = inspect.unwrap(method).__globals__[UNPAD]
    with patch.dict(padding.__globals__, pad_input=pad_input, unpad_input=unpad_input):  # undefined without a GPU
        return run_on_ranks(ranks, work)[0].batch


def _step(target: Target, path: str, engine: str, columns: str) -> Step:
    return Step(
        call=pass_of_worker,
        name="passed",
        doubles=present(target, DOUBLES),
        arguments={
            "method": Constant(Function(path)),
            "owner": Constant(Function(path.rpartition(".")[0])),
            "engine": fsdp(engine),
            "wrap": HUGGING_FACE,
            "data": trainer_batch(Knob("temperature")),
            "columns": Column(columns),
            "about": Table(WORKER),
            "ranks": RANKS,
        },
        produced_by={"data": DATA},
    )


def _log_probs(target: Target, path: str) -> Boundary:
    settings = {**_SETTINGS, "sequence parallel": {**TWO_RANKS, **_DYNAMIC}}
    reach = "padded: model.use_remove_padding=False; sequence parallel: actor.ulysses_sequence_parallel_size=2"
    step = _step(target, LOG_PROBS, LM_HEAD, "logits")
    return log_prob_boundary(target, path, step, settings, reach, squares=False, entropy="entropy")


def _values(target: Target, path: str) -> Boundary:
    step = _step(target, VALUES, VALUE_HEAD, "value")
    return value_boundary(path, step, {"packed": DYNAMIC}, "trainer.use_legacy_worker_impl=disable")
