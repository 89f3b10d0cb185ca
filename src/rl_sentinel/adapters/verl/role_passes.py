"""Boundaries of the forward passes of verl's workers of October and November 2025."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable, present
from rl_sentinel.adapters.kit.causal_model import CausalModel, model_of, with_prompt_tokens
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.flash_attention import pad_input, unpad_input
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import megatron_passes as megatron
from rl_sentinel.adapters.verl.engine_passes import (
    CONFIG,
    DATA,
    DYNAMIC,
    FAKES,
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
    prompts_differ,
    value_boundary,
)
from rl_sentinel.adapters.verl.rollout_batch import POSITIONS, trainer_batch
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Unbindable

LOG_PROBS = "verl.workers.roles.actor.ActorWorker.compute_log_prob"
VALUES = "verl.workers.roles.critic.CriticWorker.compute_values"

#: The function of the worker's module that packs a padded batch.
UNPAD = "left_right_2_no_padding"

#: How a user reaches the actor: `main_ppo` makes the critic of these workers at most.
_OWN_LOOP = "a loop of your own with workers.roles.ActorWorker (main_ppo uses it with no setting), rollout.temperature"

_SETTINGS: Mapping[str, Settings] = {"packed": DYNAMIC, "padded": PADDED}

#: Pieces of a sequence that two ranks share.
PIECES = 4

#: Setting of the data -> names of it in the configuration of a worker.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "max_token_len_per_gpu": ("ppo_infer_max_token_len_per_gpu", "ppo_max_token_len_per_gpu"),
    "micro_batch_size_per_gpu": ("ppo_infer_micro_batch_size_per_gpu", "ppo_micro_batch_size_per_gpu"),
}


@dataclass(frozen=True, slots=True)
class Strategy:
    """How to bind the engines of one kind.

    Attributes:
        lm_head: the path of the engine class with a language model head.
        value_head: the path of the engine class with a value head.
        needed: further paths that the target must have.
        engine: makes an engine of the class at the given path.
        wrap: makes the model that the engine calls.
        fakes: fakes that replace names of the target.
        settings: the settings that the release supports, by name.
        split: the name of the setting in which ranks share each sequence.
        reach: how a user reaches these engines.
    """

    lm_head: str
    value_head: str
    needed: tuple[str, ...]
    engine: Callable[[Target, str], Object]
    wrap: Codec
    fakes: Mapping[str, Callable[..., Any]]
    settings: Callable[[Target], Mapping[str, Settings]]
    split: str
    reach: str


_STRATEGIES = (
    Strategy(
        LM_HEAD,
        VALUE_HEAD,
        (CONFIG, ULYSSES),
        lambda _target, kind: fsdp(kind),
        HUGGING_FACE,
        FAKES,
        lambda _target: _SETTINGS,
        "sequence parallel",
        "padded: model.use_remove_padding=False; sequence parallel: actor.ulysses_sequence_parallel_size=2",
    ),
    Strategy(
        megatron.LM_HEAD,
        megatron.VALUE_HEAD,
        megatron.NEEDED,
        megatron.engine_codec,
        megatron.CHUNKS,
        megatron.FAKES,
        lambda target: _SETTINGS if megatron.can_pad(target) else {"packed": DYNAMIC},
        "context parallel",
        "actor.strategy=megatron; context parallel: actor.megatron.context_parallel_size=2",
    ),
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the forward passes of actor and critic on FSDP and on Megatron."""
    for strategy in _STRATEGIES:
        for method, engine, make in (
            (LOG_PROBS, strategy.lm_head, _log_probs),
            (VALUES, strategy.value_head, _values),
        ):
            if not all(target.has(name) for name in (method, engine, f"{method.rsplit('.', 2)[0]}.{UNPAD}")):
                continue  # before October 2025 the engine took padded batches
            path = f"{method} -> {engine}.forward_step"
            try:
                for needed in (method, engine, POSITIONS, *strategy.needed):
                    target.find(needed)
            except Unbindable as why:
                yield Unbound.because(path, "batch", why)
                continue
            yield from bindable(target, *make(target, path, strategy))


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
    """Run the worker's forward pass on a batch, with a model that returns ``columns``; return the result of rank 0."""
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


def _step(target: Target, path: str, strategy: Strategy, engine: str, columns: str) -> Step:
    return Step(
        call=pass_of_worker,
        name="passed",
        fakes=present(target, strategy.fakes),
        arguments={
            **functions(method=path, owner=path.rpartition(".")[0]),
            "engine": strategy.engine(target, engine),
            "wrap": strategy.wrap,
            "data": trainer_batch(Knob("temperature")),
            "columns": Column(columns),
            "about": Table(WORKER),
            "ranks": RANKS,
        },
        produced_by={"data": DATA},
    )


def _log_probs(target: Target, path: str, strategy: Strategy) -> Iterator[Boundary]:
    step = _step(target, LOG_PROBS, strategy, strategy.lm_head, "logits")
    entropy = "entropys" if '"entropys"' in inspect.getsource(inspect.unwrap(target.find(LOG_PROBS))) else "entropy"
    settings = strategy.settings(target)
    reach = f"{_OWN_LOOP}; {strategy.reach}"
    made = log_prob_boundary(target, path, step, settings, strategy.reach, squares=False, entropy=entropy)
    yield replace(made, reach=reach)
    settings = {strategy.split: TWO_RANKS}
    shared = log_prob_boundary(target, path, step, settings, strategy.reach, squares=False, entropy=entropy)
    yield replace(shared, reach=reach, requires=(*shared.requires, fills_pieces), domain=with_long_prompts)


def fills_pieces(inputs: Inputs) -> str:
    """The reason to skip a batch where a sequence has too few tokens for two pieces per rank; empty otherwise."""
    batch = inputs.batch
    return (
        ""
        if int((batch.prompt_length + batch.length).min()) >= PIECES
        else f"a sequence has fewer than {PIECES} tokens"
    )


def with_long_prompts(batch: Batch) -> Batch:
    """The batch of :func:`prompts_differ`, with sequences that have a token for each piece.

    If a sequence has fewer than ``PIECES`` tokens, all prompts get that many more.
    """
    own = prompts_differ(batch)
    short = int((own.prompt_length + own.length).min()) < PIECES
    return replace(own, prompt_length=own.prompt_length + PIECES) if short else own


def _values(target: Target, path: str, strategy: Strategy) -> Iterator[Boundary]:
    step = _step(target, VALUES, strategy, strategy.value_head, "value")
    yield value_boundary(path, step, {"packed": DYNAMIC}, "trainer.use_legacy_worker_impl=disable")
