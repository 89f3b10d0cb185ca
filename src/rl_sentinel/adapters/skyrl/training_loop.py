"""One step of SkyRL's training loop: the trained rows, and the logged table of trajectories."""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.skyrl.arguments import CONFIG, STEP_WISE, TRAINER
from rl_sentinel.adapters.skyrl.dynamic_sampling import (
    FAMILIES,
    LOGPROBS,
    TRAJECTORY,
    Rollouts,
    columns_read,
    requirements,
    sampled_rows,
)
from rl_sentinel.adapters.skyrl.forward_passes import Passed
from rl_sentinel.adapters.skyrl.rollout import GENERATED
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings

PATH = f"{TRAINER}.train"
LOGGER = "skyrl.train.utils.trajectory_logging.TrajectoryLogger"

#: Name -> settings. "replace" is left out: its batch repeats some uids, which an assertion of some releases rejects.
_FAMILIES: Mapping[str, Settings] = {"default": {}, "step-wise": {STEP_WISE: True}, "filter": FAMILIES["filter"]}

#: The number of trajectories to log.
_LOGGED = "trainer.num_logger_train_samples"

#: One epoch of one step, in which nothing is saved or evaluated.
_RUN: Settings = {
    "trainer.epochs": 1,
    "trainer.eval_interval": -1,
    "trainer.ckpt_interval": -1,
    "trainer.hf_save_interval": -1,
    "trainer.max_training_steps": 1,
    _LOGGED: 1000,
    "trainer.placement.colocate_all": False,
    "trainer.algorithm.advantage_estimator": "grpo",
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loop, in releases that log trajectories of the training."""
    if not target.has(LOGGER) or "trajectory_logger.log" not in inspect.getsource(target.find(PATH)):
        return
    for name, settings in _FAMILIES.items():
        yield from bindable(target, _boundary(name, settings))


class Words:
    """A tokenizer whose words are token ids."""

    pad_token_id = -1

    def decode(self, ids: list[int], **_options: object) -> str:
        """The ids as words."""
        return " ".join(map(str, ids))


class Tracker:
    """A fake log, with the table of trajectories."""

    backend = "wandb"

    def __init__(self) -> None:
        """Start with no rows."""
        self.rows: list[tuple[Any, ...]] = []

    def log_samples_to_table(self, samples: list[tuple[Any, ...]], **_about: object) -> None:
        """Store the rows."""
        self.rows += samples

    def log(self, *_arguments: object, **_options: object) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


class Dispatch:
    """A fake of the dispatch to one worker; all log-probs are 0."""

    async def save_weights_for_sampler(self) -> None:
        """Do nothing: there is no sampler."""

    def get_lcm_dp_size(self) -> int:
        """The number of workers, 1."""
        return 1

    def forward(self, model: str, data: Any) -> Passed:  # noqa: ANN401 - the target's batch
        """The forward pass of a model."""
        return self.forward_from_staged(model, (data.batch_size, data.metadata["response_length"]))

    def stage_data(self, _model: str, data: Any, mini_batches: list[tuple[int, int]]) -> list[tuple[int, int]]:  # noqa: ANN401
        """Rows and width of each mini-batch."""
        return [(end - begin, data.metadata["response_length"]) for begin, end in mini_batches]

    def forward_from_staged(self, _model: str, shape: tuple[int, int]) -> Passed:
        """The forward pass of a model over a mini-batch."""
        return Passed(torch.zeros(shape), "logprobs")

    def empty_cache(self, *_models: str) -> None:
        """Do nothing: there is no cache."""

    def finalize_pending_saves(self, _model: str) -> None:
        """Do nothing: nothing is saved."""


class Generator:
    """A fake generator that returns the rows of the next round on each call."""

    def __init__(self, rollouts: Rollouts, rounds: list[list[dict[str, Any]]]) -> None:
        """Store the rows."""
        self.rollouts, self.rounds = rollouts, iter(rounds)

    async def generate(self, _prompts: Mapping[str, Any]) -> dict[str, Any]:
        """The rows of the next round."""
        return self.rollouts.output(next(self.rounds))


class NoBar:
    """A fake progress bar."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        """Show nothing."""

    def update(self, _steps: int) -> None:
        """Do nothing."""

    def set_postfix(self, _numbers: Mapping[str, Any]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _prompts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The prompts of a round, as the data loader has them."""
    names = dict.fromkeys(row["uid"] for row in rows)
    chat = {name: [{"role": "user", "content": f"<{name}>"}] for name in names}
    return [{"prompt": chat[name], "env_class": "env", "env_extras": {}, "uid": name} for name in names]


def train_step(
    owner: Any,  # noqa: ANN401 - the target's class
    cfg: Any,  # noqa: ANN401 - the target's class
    rows: list[dict[str, Any]],
    trajectory: Callable[..., Any] | None,
    logger: Callable[[], Any],
) -> dict[str, list[float]]:
    """Run one step.

    Returns, per row, ``advantage``: the sum of its advantages; ``update`` and ``table``: how many of its columns in the
    trained batch and in the logged table come from another row.
    """
    rollouts = Rollouts(rows, trajectory, [LOGPROBS])
    rounds = rollouts.rounds(cfg)
    if cfg.trainer.algorithm.dynamic_sampling.type != "filter":  # a step trains the prompts that it sampled
        rounds = rounds[:1]
        cfg.trainer.train_batch_size = len(_prompts(rounds[0]))
    cfg.trainer.policy_mini_batch_size = cfg.trainer.train_batch_size
    trainer, updates = _trainer(owner, cfg, rollouts, rounds)
    trainer.trajectory_logger = logger()
    with replaced_globals(owner.train.__globals__, tqdm=NoBar):
        asyncio.run(trainer.train())
    known = {row["number"]: row for some in rounds for row in some}
    trained = list(_rows_of(updates[0]))
    sums = updates[0]["advantages"].sum(1).tolist()
    return {
        "advantage": _counts(len(rows), [(row[0][-1], one) for row, one in zip(trained, sums, strict=True)]),
        "update": _counts(len(rows), [_trained(rollouts, known, row) for row in trained]),
        "table": _counts(len(rows), [_logged(known, row) for row in trainer.tracker.rows]),
    }


def _trainer(owner: Any, cfg: Any, rollouts: Rollouts, rounds: list[list[dict[str, Any]]]) -> tuple[Any, list[Any]]:  # noqa: ANN401
    """A trainer with fake models and a fake log, and the batches that it trains on."""
    updates: list[Any] = []

    def update(_self: object, data: Any) -> dict[str, float]:  # noqa: ANN401 - the target's batch
        updates.append(data)
        return {}

    attributes: dict[str, Any] = {
        "has_critic": property(lambda _self: False),
        "train_critic_and_policy": update,
        "_fire": lambda _self, _event, **_fields: None,
    }
    trainer = bare_trainer(
        owner,
        attributes,
        cfg=cfg,
        tracker=Tracker(),
        dispatch=Dispatch(),
        generator=Generator(rollouts, rounds),
        train_dataloader=[_prompts(sampled) for sampled in rounds],
        total_training_steps=1,
        resume_mode=owner.train.__globals__["ResumeMode"].NONE,
    )
    return trainer, updates


def bare_trainer(owner: Any, methods: Mapping[str, Any], **attributes: object) -> Any:  # noqa: ANN401 - the target's class
    """A trainer whose ``methods`` are replaced, without models except those in ``attributes``."""
    models = ("policy_model", "ref_model", "critic_model", "reward_model")
    missing = dict.fromkeys(("dynamic_sampling_state", "reward_kl_controller", *models))
    return bare_instance(
        type("Trainer", (owner,), {"init_weight_sync_state": lambda _self: None, **methods}),
        colocate_all=False,
        tokenizer=Words(),
        global_step=0,
        all_metrics={},
        all_timings={},
        **{**missing, **attributes},
        _ray_gpu_monitor=None,
        _vllm_metrics_scraper=None,
        _training_control=SimpleNamespace(should_save=False, should_evaluate=False, reset=lambda: None),
        _num_training_gpus=1,
    )


def _rows_of(data: Any) -> Iterator[tuple[list[Any], ...]]:  # noqa: ANN401 - the target's batch
    """For each row, the tokens of the sequence, and the mask and the log-probs of the response."""
    for row, real in enumerate(data["response_mask"].bool()):
        tokens = [token for token in data["sequences"][row].tolist() if token != Words.pad_token_id]
        yield tokens, data["loss_mask"][row][real].int().tolist(), data["rollout_logprobs"][row][real].tolist()


def _trained(rollouts: Rollouts, known: Mapping[int, Any], row: tuple[list[Any], ...]) -> tuple[int, int]:
    """The index of a trained row, and how many of its columns come from another row."""
    rollout = rollouts.output([known[row[0][-1]]])
    tokens = rollout["prompt_token_ids"][0] + rollout["response_ids"][0]
    right = (tokens, rollout["loss_masks"][0], rollout["rollout_logprobs"][0])
    return row[0][-1], sum(found != expected for found, expected in zip(row, right, strict=True))


def _logged(known: Mapping[int, Any], row: tuple[Any, ...]) -> tuple[int, int]:
    """The row that an entry of the table shows, and how many of prompt, reward, turns and tokens are of another row."""
    _step, reward, turns, text = row
    prompt, _, response = text.partition(">")
    tokens = [int(word) for word in re.findall(r"\d+", response)]
    sample = known[tokens[-1]]
    spans = sum(now == 1 and before != 1 for before, now in zip([0, *sample["mask"]], sample["mask"], strict=False))
    counted = sample["reward"] if sample.get("last_step", True) else 0.0
    right = (sample["uid"], counted, spans, [sample["number"]] * len(sample["mask"]))
    found = (prompt.partition("<")[2], reward, turns, tokens)
    return sample["number"], sum(one != other for one, other in zip(found, right, strict=True))


def _counts(rows: int, found: Sequence[tuple[int, float]]) -> list[float]:
    """The sum of the counts of each row; a row from outside the case counts for the row at its place, or the last."""
    counts = [0.0] * rows
    for place, (number, wrong) in enumerate(found):
        counts[number if number < rows else min(place, rows - 1)] += wrong
    return counts


def _boundary(name: str, settings: Settings) -> Boundary:
    step_wise = bool(settings.get(STEP_WISE))
    trained, form = Use("trained"), PerRow("list")
    return one_call(
        path=PATH,
        stage="batch",
        call=train_step,
        name="trained",
        arguments={
            "owner": Constant(Function(TRAINER)),
            "cfg": Config(CONFIG, fixed=_RUN, knobs_at={path: path for path in settings}),
            "rows": sampled_rows(step_wise=step_wise),
            "trajectory": Constant(Function(TRAJECTORY) if step_wise else None),
            "logger": Constant(Function(LOGGER)),
        },
        produced_by={"rows": f"{GENERATED}; the uid of a step is the instance_id of its trajectory"},
        reads=columns_read(step_wise=step_wise),
        # The advantages come first: the check before an audit moves signals, and counts of 0 do not move.
        outputs={"sum of advantages": Output("B", "reward", at=trained["advantage"], form=form)}
        | {
            f"number of columns from other samples {place}": Output(
                "B", "", "columns_of_others", at=trained[key], form=form
            )
            for key, place in (("update", "in the update"), ("table", "in the table of trajectories"))
        },
        settings={name: settings},
        reach=", ".join(f"{path}={value}" for path, value in ({_LOGGED: 1} | dict(settings)).items()),
        requires=requirements(step_wise=step_wise),
    )
