"""Boundaries of the metrics of verl's v1 trainer: the metrics of a step with synthetic rows, and of validation."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column, Labels, PromptIds, ResponseMask
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import (
    has_trained_token,
    no_empty_response,
)
from rl_sentinel.adapters.kit.result_forms import Detached
from rl_sentinel.adapters.kit.reward_codecs import PerRowOutcome, TokenRewards
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.metrics import LOGGED, PLACES
from rl_sentinel.adapters.verl.queue_fakes import Queue, QueuedBatch, cut, takes_ages
from rl_sentinel.adapters.verl.queue_trainer import BASE, MODULE, TRAINER
from rl_sentinel.adapters.verl.validation import ALWAYS, BOOTSTRAP, enumerate_draws
from rl_sentinel.adapters.verl.validation_run import (
    SOURCES,
    shared_text,
    statistics_boundary,
    validation_config,
)
from rl_sentinel.core.boundary import Boundary, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use

METRICS, VALIDATE = f"{BASE}._compute_metrics", f"{BASE}._validate"
PADDING = "verl.trainer.ppo.padding_utils"
UPSAMPLE = f"{PADDING}.upsample_batch_to_divisible_size"

#: The value of a synthetic row in columns that the trainer adds; a model would give such numbers, too.
_SYNTHETIC = 7.0

#: An earlier output of a session has this reward minus the reward of the last output; no metric counts it.
_EARLIER = 50.0

_PRODUCED = (
    "v1/agent_loop_tq.py: prompts, responses, response_mask, rm_scores without padding; v1/trainer_base.py, "
    "_balance_batch: synthetic rows by upsample_batch_to_divisible_size; _compute_advantage: advantages, returns, and "
    "token_level_rewards with a KL penalty in the reward; _compute_values: values"
)
_VALIDATED = (
    "v1/agent_loop_tq.py: an output has the key of its prompt, session and number, and its reward in rm_scores; only "
    "the final output of a session counts (v1/trainer_base.py, _validate)"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the metrics of a step, then of validation."""
    if not target.has(TRAINER) or target.fails(TRAINER):
        return
    if target.has(METRICS) and target.has(UPSAMPLE):
        yield from try_bind(target, METRICS, "metric", lambda: [_step_metrics(target)])
    if target.has(VALIDATE):
        yield from try_bind(target, VALIDATE, "metric", lambda: [_validation(target, n) for n in (1, 2)])


def compute_metrics(  # noqa: PLR0913 - a trainer has several parts
    method: Callable[..., Any],
    upsample: Callable[..., Any],
    owner: type,
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    made: dict[str, Tensor],
    added: dict[str, Tensor],
    valid: Tensor,
) -> dict[str, Any]:
    """Let the trainer add a synthetic row to a batch, and return the metrics of the batch.

    ``made`` has the columns of the rollout. ``added`` has the columns that the trainer computes for all rows, including
    the synthetic row.
    """
    lengths = valid.sum(1)
    rows = len(lengths)
    keys = [f"prompt-{row}_0_0" for row in range(rows)]
    prompts = [torch.ones(1 + row % 2, dtype=torch.int64) for row in range(rows)]
    columns: dict[str, list[Any]] = {name: cut(column, lengths) for name, column in made.items()}
    columns |= {"uid": [f"prompt-{row}" for row in range(rows)], "prompts": prompts, "num_turns": [2] * rows}
    Queue.fill(keys, columns)
    tags = [{"min_global_steps": 0, "max_global_steps": 0, "seq_len": int(n)} for n in lengths]
    batch = upsample(QueuedBatch(keys, tags=tags), rows + 1, 0)
    for name, column in added.items():
        for key, values in zip(batch.keys, cut(column, lengths), strict=False):
            Queue.rows[key][name] = values
        Queue.rows[batch.keys[-1]][name] = torch.tensor([_SYNTHETIC])
    trainer = bare_instance(
        owner,
        config=config,
        use_critic=True,
        _rollout_moe_lb_metrics_accumulator=None,
        resource_pool_manager=SimpleNamespace(get_n_gpus=lambda: 1),
    )
    trainer._get_n_gpus_for_throughput = lambda: 1  # noqa: SLF001 - asks a resource pool
    metrics: dict[str, Any] = {}
    method(trainer, batch, metrics, {"step": 1.0}, global_steps=1, epoch=0)
    return metrics


class Sampler:
    """A fake agent loop and replay buffer in one object; it puts the outputs of each prompt into the queue."""

    def __init__(self, rewards_of: list[list[float]], outputs: int, *, ages: bool) -> None:
        """Store the rewards of each prompt's samples (``rewards_of``) and the number of outputs per session.

        If the trainer takes ``ages``, each batch comes with the metrics of its age.
        """
        self.rewards_of, self.outputs, self.ages = rewards_of, outputs, ages
        self.keys: list[str] = []

    def generate_sequences(self, batch: Any) -> None:  # noqa: ANN401 - a TensorDict
        """Sample responses to the prompts of a batch, the last prompt first: responses may finish in any order."""
        self.keys = []
        prompts = zip(list(batch["uid"]), batch["number"].tolist(), list(batch["data_source"]), strict=True)
        for uid, number, source in reversed(list(prompts)):
            for session, reward in enumerate(self.rewards_of[number]):
                for output in range(self.outputs):
                    last = output == self.outputs - 1
                    self._put(f"{uid}_{session}_{output}", uid, number, source, reward if last else _EARLIER - reward)

    def _put(self, key: str, uid: str, number: int, source: str, reward: float) -> None:
        Queue.rows[key] = {
            "uid": uid,
            "prompts": torch.tensor([number + 1]),
            "responses": torch.tensor([1, number + 1]),
            "rm_scores": torch.tensor([0.0, reward]),
            "num_turns": 2,
            "reward_model": {"ground_truth": ""},
            "data_source": source,
            "extra_fields": {"reward_extra_info": {}},
        }
        self.keys.append(key)

    def sample(self, partition_id: str, **_about: object) -> Any:  # noqa: ANN401 - a batch, or a batch and its metrics
        """The outputs that were sampled last."""
        batch = QueuedBatch(self.keys, partition_id, [{} for _ in self.keys])
        return (batch, {}) if self.ages else batch

    def remove(self, *_about: object) -> None:
        """Do nothing."""


def validate(
    owner: type,
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    rewards: list[float],
    groups: list[str],
    outputs: int,
) -> dict[str, Any]:
    """Validate prompts of at most two sources in at most two batches; return the trainer's logs."""
    names = list(dict.fromkeys(groups))
    rewards_of = [[r for r, own in zip(rewards, groups, strict=True) if own == name] for name in names]
    Queue.fill((), {})
    sampler = Sampler(rewards_of, outputs, ages=takes_ages(owner))
    numbers, half = list(range(len(names))), -(-len(names) // 2)
    trainer = bare_instance(
        owner,
        config=config,
        global_steps=1,
        **dict.fromkeys(("agent_loop_manager", "async_rollout_manager", "replay_buffer"), sampler),
        reward_loop_manager=SimpleNamespace(reward_loop_worker_handles=[]),
        tokenizer=SimpleNamespace(pad_token_id=0, decode=shared_text),
        val_dataloader=[_prompts(part) for part in (numbers[:half], numbers[half:]) if part],
    )
    logged: dict[str, Any] = trainer._validate()  # noqa: SLF001 - the trainer's own
    return logged


def _prompts(numbers: list[int]) -> dict[str, Any]:
    """A batch of the data loader."""
    raw, sources = np.empty(len(numbers), dtype=object), np.empty(len(numbers), dtype=object)
    for place, number in enumerate(numbers):
        raw[place] = [{"role": "user", "content": f"question {number}"}]
        sources[place] = SOURCES[min(number, 1)]
    return {"raw_prompt": raw, "data_source": sources, "number": torch.tensor(numbers)}


def _step_metrics(target: Target) -> Boundary:
    path = next(p for p in PLACES if target.has(p))
    source = inspect.getsource(target.find(path))
    logs = {n: o for n, o in LOGGED.items() if re.search(rf"""["']{re.escape(n)}["']""", source)}
    made = {"responses": Column("token"), "response_mask": MASK, "rm_scores": PerRowOutcome()}
    added = {
        "token_level_rewards": TokenRewards(),
        **{name: Column(column) for name, column in (("values", "value"), ("advantages", "advantage"))},
        "returns": Column("returns"),
    }
    return one_call(
        path=f"{UPSAMPLE} -> {METRICS}",
        stage="metric",
        call=compute_metrics,
        name="metrics",
        fakes={f"{MODULE}.tq": Queue, f"{PADDING}.tq": Queue, f"{PADDING}.KVBatchMeta": QueuedBatch},
        arguments={
            **functions(method=METRICS, upsample=UPSAMPLE, owner=TRAINER),
            "config": default_config(
                target, "", {"data.max_response_length": Derived(lambda inputs: inputs.batch.width)}, resolved=True
            ),
            "made": Table(made),
            "added": Table(added),
            "valid": ResponseMask(),
        },
        produced_by={"made": _PRODUCED},
        unused=frozenset({"token"}),
        outputs={name: replace(o, at=Use("metrics")[name], form=Detached()) for name, o in logs.items()},
        settings={"with a synthetic row": {}},
        reach="every step with trainer.use_v1=True (the default); a batch that the mini-batches do not divide",
        requires=(has_trained_token, no_empty_response),
    )


def _validation(target: Target, outputs: int) -> Boundary:
    step = Step(
        call=validate,
        name="logged",
        fakes={f"{MODULE}.tq": Queue, **({BOOTSTRAP: enumerate_draws} if target.has(BOOTSTRAP) else {})},
        arguments={
            "owner": Constant(Function(TRAINER)),
            "config": validation_config(target),
            "rewards": Labels("reward"),
            "groups": PromptIds("strings-list"),
            "outputs": Constant(outputs),
        },
        produced_by={"rewards": _VALIDATED},
    )
    return statistics_boundary(
        VALIDATE,
        step,
        ALWAYS,
        {"two sources" if outputs == 1 else "two outputs a session": {}},
        "every validation with trainer.use_v1=True (the default); rollout.val_kwargs.n above 1",
    )
