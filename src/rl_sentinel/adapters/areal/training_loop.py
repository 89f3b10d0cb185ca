"""One step of AReaL's training loop: the outputs of the models reach the update of the rows that they belong to."""

import inspect
import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow, Ragged
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.row_codecs import Cell, RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

TRAINER = "areal.trainer.rl_trainer.PPOTrainer"
PATH = f"{TRAINER}.train"

#: Key of a trajectory -> its column: of the rollout, then of a model.
_ROLLOUT: Mapping[str, str] = {"input_ids": "token", "logprobs": "rollout_logprob"}
_MODELS: Mapping[str, str] = {
    "values": "value",
    "ref_logp": "ref_logprob",
    "teacher_logp": "logprob",
    "prox_logp": "old_logprob",
}

_DOCS = claims(
    "rl_trainer.py, train: values, and log-probs of reference, teacher and actor, are stored in each trajectory of the "
    "rollout before the actor computes advantages and updates",
    conserves=True,
)
_PRODUCER = (
    "trainer/ppo/actor.py, prepare_batch: a dict of tensors per prompt; compute_logp and compute_values: a tensor for "
    "each of these dicts, in order"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The loop of releases that have a trainer class whose models answer for each prompt."""
    if target.has(PATH) and not target.fails(PATH) and "zip(rollout_batch" in inspect.getsource(target.find(PATH)):
        yield from bindable(target, _boundary())


class Role:
    """A double of a model or a sampler: it answers with its column, and keeps the batch that it is updated with."""

    def __init__(self, prompts: list[list[dict[str, Any]]], key: str = "") -> None:
        """``key`` is the item of a row that the model computes."""
        self.prompts, self.key = prompts, key
        self.updates: list[list[dict[str, Any]]] = []

    def prepare_batch(self, *_passed: object, **_options: object) -> list[dict[str, Any]]:
        """The rollout: one item per prompt."""
        return [
            {name: [row[name] for row in rows] for name in (*_ROLLOUT, "rewards", "number")} for rows in self.prompts
        ]

    def compute_logp(self, batch: list[dict[str, Any]]) -> list[list[Any]]:
        """The column of this model, for each prompt of the batch."""
        known = {row["number"]: row for rows in self.prompts for row in rows}
        return [[known[number][self.key] for number in prompt["number"]] for prompt in batch]

    compute_values = compute_logp

    def compute_advantages(self, batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The batch as it is: the actor's method has boundaries of its own."""
        return batch

    def ppo_update(self, batch: list[dict[str, Any]]) -> None:
        """Keep the batch."""
        self.updates.append([dict(prompt) for prompt in batch])

    def get_device_stats(self) -> SimpleNamespace:
        """A log that nobody reads."""
        return SimpleNamespace(log=lambda _name: None)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a method that does nothing
        """Other methods, such as ``pause`` or ``set_version``, do nothing."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_passed, **_options: None


def train_step(owner: Any, prompts: list[list[dict[str, Any]]]) -> dict[str, list[Any]]:  # noqa: ANN401 - the target's class
    """What the actor's update has of each row, and the values that the critic's update has."""
    for number, row in enumerate(row for rows in prompts for row in rows):
        row["number"] = number
    actor, critic = Role(prompts, "prox_logp"), Role(prompts, "values")
    teacher = SimpleNamespace(rl_loss_weight=1.0, distill_loss_weight=1.0)
    config = SimpleNamespace(
        total_train_epochs=1,
        total_train_steps=1,
        memory_profiler=None,
        dynamic_bs=False,
        gconfig=SimpleNamespace(n_samples=1),
        actor=SimpleNamespace(should_compute_prox_logp=lambda: True),
        teacher=teacher,
    )
    silent = dict.fromkeys(("_save_hf", "_save_recover_checkpoint", "_evaluate", "_export_and_commit_stats"), _nothing)
    kind = type("Trainer", (owner,), {**silent, "_save_perf_tracer": _nothing, "_requires_proxy_workflow": _nothing})
    roles = ("rollout", "saver", "weight_update_meta")
    offloaded = {f"_should_offload_{role}": False for role in ("rollout", "actor", "critic", "ref", "teacher")}
    trainer = bare_instance(
        kind,
        config=config,
        recover_info=None,
        train_dataloader=[None],
        actor=actor,
        critic=critic,
        ref=Role(prompts, "ref_logp"),
        teacher=Role(prompts, "teacher_logp"),
        eval_rollout=None,
        data_controller=None,
        **{role: Role(prompts) for role in roles},
        **offloaded,
    )
    with replaced_globals(owner.train.__globals__, is_single_controller=lambda: False):
        trainer.train(workflow="workflow")
    (update,), (values,) = actor.updates, critic.updates
    columns = {key: [row for prompt in update for row in _rows(prompt, key)] for key in (*_ROLLOUT, *_MODELS)}
    rewards = [reward for prompt in update for reward in prompt["rewards"]]
    return {**columns, "rewards": rewards, "critic": [row for prompt in values for row in _rows(prompt, "values")]}


def _rows(prompt: dict[str, Any], key: str) -> list[list[float]]:
    """The column of a prompt; infinite numbers where the trainer stored none."""
    rows: list[list[float]] = prompt.get(key, [[math.inf] * len(tokens) for tokens in prompt["input_ids"]])
    return rows


def _nothing(*_passed: object, **_options: object) -> None:
    """Do nothing."""


def _boundary() -> Boundary:
    columns = {**_ROLLOUT, **_MODELS}
    row = Table(
        {key: RowTokens(column, "int" if column == "token" else "float") for key, column in columns.items()}
        | {"rewards": Cell("reward")}
    )
    step = Step(
        call=train_step,
        name="trained",
        arguments={"owner": Constant(Function(TRAINER)), "prompts": EachPrompt(EachRow(row))},
        produced_by={"prompts": _PRODUCER},
    )
    trained, form = Use("trained"), Ragged()
    outputs = {
        # A token is a label, and the check before an audit moves signals.
        key: Output("B T", "", columns[key], at=trained[key], form=form)
        for key in (*_MODELS, *_ROLLOUT)
    }
    outputs["values of the critic's update"] = Output("B T", "reward", "value", at=trained["critic"], form=form)
    outputs["rewards"] = Output("B", "reward", "reward", at=trained["rewards"], form=PerRow("list"))
    return Boundary(
        path=PATH,
        stage="batch",
        steps=(step,),
        outputs=outputs,
        claims=_DOCS,
        reach="a run with critic, reference, teacher and recomputed log-probs",
        requires=(prompts_are_contiguous, no_empty_response),
    )
