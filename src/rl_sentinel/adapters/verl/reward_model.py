"""Boundary of verl's reward-model worker, until February 2026: the score at the last token of each response."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Namespace
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER
from rl_sentinel.adapters.verl.engine_imports import engine_installed
from rl_sentinel.adapters.verl.worker_batch import (
    LONGEST,
    MICRO_BATCH,
    accelerator_fakes,
    worker_data,
    worker_object,
)
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

MODULE = "verl.workers.fsdp_workers"
WORKER = f"{MODULE}.RewardModelWorker"
PATH = f"{WORKER}.compute_rm_score"

_CLAIMS = claims(
    "fsdp_workers.py, comments of RewardModelWorker: the result of the last valid token, expanded as a token-level "
    "reward",
    algorithm="outcome at the last response token",
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the scores with equal micro-batches, and with a dynamic batch size."""
    with engine_installed("vllm"):
        target.has(PATH)  # imports its module
    yield from try_bind(target, PATH, "reward", lambda: [_scores(target)])


class RewardModel:
    """A fake reward model: a row's reward at the last token, else another number; the first token is the row index."""

    _handle = SimpleNamespace(reshard=lambda *_about: None)  # of FSDP

    def __init__(self, answers: dict[str, Tensor]) -> None:
        """Set the reward of each row."""
        self.answers = answers

    def __call__(self, input_ids: Tensor, attention_mask: Tensor, **_about: object) -> Any:  # noqa: ANN401 - as a model
        """The scores ``[B, S, 1]`` of all positions."""
        size = attention_mask.shape[1]
        off = attention_mask.sum(1, keepdim=True) - 1 - torch.arange(size)
        rewards = self.answers["reward"][input_ids[:, 0]].unsqueeze(1)
        return SimpleNamespace(logits=(rewards + off).unsqueeze(-1))


class _NoSharding(nullcontext[None]):
    """A fake manager of sequence parallelism in one process."""

    def preprocess_data(self, data: Any) -> Any:  # noqa: ANN401 - a DataProto
        """The data, unchanged."""
        return data

    postprocess_data = preprocess_data


def reward_worker(kind: Any, config: Any, answers: dict[str, Tensor]) -> Any:  # noqa: ANN401 - a class of the target
    """A worker of one process with a :class:`RewardModel`, without its ``__init__``, which joins a cluster."""
    return bare_instance(
        kind,
        config=config,
        reward_module=RewardModel(answers),
        ulysses_sharding_manager=_NoSharding(),
        ulysses_sequence_parallel_size=1,
        use_remove_padding=False,
        _do_switch_chat_template=False,
        _rank=0,
        _world_size=1,
    )


def scores_of(method: Callable[..., Any], worker: Any, data: Any) -> Any:  # noqa: ANN401 - of the target
    """Score a batch. Releases until May 2025 import functions of flash attention for padded sequences, too."""
    library = ModuleType("flash_attn.bert_padding")
    unused = dict.fromkeys(("pad_input", "unpad_input", "index_first_axis", "rearrange"))
    vars(library).update(unused)
    with patch.dict(sys.modules, {"flash_attn": ModuleType("flash_attn"), library.__name__: library}):
        return method(worker, data)


def _scores(target: Target) -> Boundary:
    source = inspect.getsource(target.find(WORKER))
    config = Namespace(
        micro_batch_size_per_gpu=MICRO_BATCH,
        micro_batch_size=MICRO_BATCH,
        use_dynamic_bsz=Knob("use_dynamic_bsz"),
        forward_max_token_len_per_gpu=LONGEST,
    )
    scores = Use("scores").attribute("batch")["rm_scores"]
    worker = worker_object(reward_worker, WORKER, config, {"reward": Column("reward")}, model="reward_module")
    return one_call(
        path=PATH,
        stage="reward",
        call=scores_of,
        name="scores",
        fakes=accelerator_fakes(target, MODULE, source),
        arguments={
            "method": Constant(Function(PATH)),
            "worker": worker,
            "data": worker_data({}),
        },
        produced_by={"data": f"{MASK_PRODUCER}; ray_trainer.py, fit: the whole batch after the rollout"},
        unused=frozenset({"token", "mask"}),
        outputs={"token_reward": Output("B T", "reward", "token_reward", at=scores, form=Padded())},
        settings={"micro-batches": {"use_dynamic_bsz": False}, "dynamic batch size": {"use_dynamic_bsz": True}},
        claims=_CLAIMS,
        reach="reward_model.enable=True",
        requires=(no_empty_response,),
    )
