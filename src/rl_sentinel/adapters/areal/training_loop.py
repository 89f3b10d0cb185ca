"""One step of AReaL's training loop: whether the model outputs of a row reach the update of the same row."""

import inspect
import math
from collections.abc import Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow, Ragged
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.row_codecs import Cell, RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: Paths of the trainer, newest first.
TRAINERS = (
    "areal.trainer.rl_trainer.PPOTrainer",
    "areal.experimental.trainer.rl.PPOTrainer",
)

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
    """Boundaries of the loop, in releases with a trainer class.

    Models return one item per prompt, or one item per batch.
    """
    owner = next((path for path in TRAINERS if target.has(f"{path}.train")), "")
    if not owner or target.fails(owner):
        return
    source = inspect.getsource(target.find(f"{owner}.train"))
    by_prompt = "zip(rollout_batch" in source
    models = tuple(key for key in _MODELS if by_prompt or f'batch["{key}"]' in source)
    if models:
        yield from bindable(target, _boundary(owner, models, by_prompt=by_prompt))


class Role:
    """A fake model or sampler: it returns its column, and records the batch of its update."""

    def __init__(self, prompts: list[list[dict[str, Any]]], key: str = "", *, by_prompt: bool = True) -> None:
        """Store the rows and the column ``key`` of the model; a batch has one item per prompt, or is one item."""
        self.prompts, self.key, self.by_prompt = prompts, key, by_prompt
        self.updates: list[list[dict[str, Any]]] = []

    def prepare_batch(self, *_passed: object, **_options: object) -> Any:  # noqa: ANN401 - as the release's
        """The rollout, as one item per prompt or as one item with all rows."""
        items = self.prompts if self.by_prompt else [[row for rows in self.prompts for row in rows]]
        batch = [{name: [row[name] for row in rows] for name in (*_ROLLOUT, "rewards", "number")} for rows in items]
        return batch if self.by_prompt else batch[0]

    def compute_logp(self, batch: Any) -> list[Any]:  # noqa: ANN401 - as the release's
        """The column of this model, for each item of the batch."""
        known = {row["number"]: row for rows in self.prompts for row in rows}
        columns = [[known[number][self.key] for number in item["number"]] for item in _items(batch)]
        return columns if self.by_prompt else columns[0]

    compute_values = compute_logp

    def compute_advantages(self, batch: Any) -> Any:  # noqa: ANN401 - as the release's
        """The batch, unchanged: other boundaries cover the actor's method."""
        return batch

    def ppo_update(self, batch: Any) -> None:  # noqa: ANN401 - as the release's
        """Record the batch."""
        self.updates.append([dict(item) for item in _items(batch)])

    def get_device_stats(self) -> SimpleNamespace:
        """A log whose content is ignored."""
        return SimpleNamespace(log=lambda _name: None)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a method that does nothing
        """Other methods, such as ``pause`` or ``set_version``, do nothing."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_passed, **_options: None


def _items(batch: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - as the release's
    """The items of a batch, as a list; a batch may be a single item."""
    return [batch] if isinstance(batch, dict) else batch


#: Methods of the trainer that save, evaluate or log, or ask for an agent's workflow: they return None.
_SILENT = (
    *("_save_training_state", "_save_hf", "_save_recover_checkpoint", "_evaluate", "_export_and_commit_stats"),
    *("_save_perf_tracer", "_requires_proxy_workflow", "_is_agent_workflow", "_ensure_proxy_started"),
    "_is_v1_awex_colocate",
)


def _config() -> SimpleNamespace:
    """The configuration of a run of one step, with a teacher and recomputed log-probs."""
    return SimpleNamespace(
        total_train_epochs=1,
        total_train_steps=1,
        memory_profiler=None,
        dynamic_bs=False,
        gconfig=SimpleNamespace(n_samples=1, reward_normalization=None, drop_incomplete_group=False),
        actor=SimpleNamespace(
            should_compute_prox_logp=lambda: True, recompute_logprob=True, use_decoupled_loss=False, group_size=1
        ),
        teacher=SimpleNamespace(rl_loss_weight=1.0, distill_loss_weight=1.0),
    )


def train_step(
    owner: Any,  # noqa: ANN401 - the target's class
    prompts: list[list[dict[str, Any]]],
    by_prompt: bool = True,  # noqa: FBT001, FBT002 - passed by name
) -> dict[str, list[Any]]:
    """Run one step; return the columns of each row in the actor's update, and the values in the critic's update."""
    for number, row in enumerate(row for rows in prompts for row in rows):
        row["number"] = number
    role = partial(Role, prompts, by_prompt=by_prompt)
    actor, critic = role("prox_logp"), role("values")
    trainer = bare_instance(
        type("Trainer", (owner,), dict.fromkeys(_SILENT, nothing)),
        config=_config(),
        recover_info=None,
        train_dataloader=[None],
        actor=actor,
        critic=critic,
        ref=role("ref_logp"),
        teacher=role("teacher_logp"),
        eval_rollout=role(),
        data_controller=None,
        **{name: role() for name in ("rollout", "saver", "weight_update_meta")},
        **{f"_should_offload_{name}": False for name in ("rollout", "actor", "critic", "ref", "teacher")},
    )
    with replaced_globals(owner.train.__globals__, is_single_controller=lambda: False):
        trainer.train(workflow="workflow")
    (update,), (values,) = actor.updates, critic.updates
    columns = {key: [row for prompt in update for row in _rows(prompt, key)] for key in (*_ROLLOUT, *_MODELS)}
    rewards = [reward for prompt in update for reward in prompt["rewards"]]
    return {**columns, "rewards": rewards, "critic": [row for prompt in values for row in _rows(prompt, "values")]}


def _rows(prompt: dict[str, Any], key: str) -> list[list[float]]:
    """The column of a prompt; infinite numbers if the trainer stored no column."""
    rows: list[list[float]] = prompt.get(key, [[math.inf] * len(tokens) for tokens in prompt["input_ids"]])
    return rows


def _boundary(owner: str, models: tuple[str, ...], *, by_prompt: bool) -> Boundary:
    columns = {**_ROLLOUT, **{key: _MODELS[key] for key in models}}
    row = Table(
        {key: RowTokens(column, "int" if column == "token" else "float") for key, column in columns.items()}
        | {"rewards": Cell("reward")}
    )
    trained, form = Use("trained"), Ragged()
    outputs = {
        # A token is a label, and the check before an audit moves signals.
        key: Output("B T", "", columns[key], at=trained[key], form=form)
        for key in (*models, *_ROLLOUT)
    }
    outputs["values of the critic's update"] = Output("B T", "reward", "value", at=trained["critic"], form=form)
    outputs["rewards"] = Output("B", "reward", "reward", at=trained["rewards"], form=PerRow("list"))
    return one_call(
        path=f"{owner}.train",
        stage="batch",
        call=train_step,
        name="trained",
        arguments={
            "owner": Constant(Function(owner)),
            "prompts": EachPrompt(EachRow(row)),
            "by_prompt": Constant(by_prompt),
        },
        produced_by={"prompts": _PRODUCER},
        outputs=outputs,
        claims=_DOCS,
        reach="a run with critic, reference, teacher and recomputed log-probs",
        requires=(prompts_are_contiguous, no_empty_response),
    )
