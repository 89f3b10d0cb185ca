"""SkyRL's loop of supervised fine-tuning: which rows train after a restart, and the logged steps."""

import inspect
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.skyrl.loop_fakes import Log, PromptLoader
from rl_sentinel.adapters.skyrl.loop_steps import EPOCHS, compare_runs, loop_boundary
from rl_sentinel.adapters.skyrl.overrides import SUPERVISED
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import Unbindable

TRAINER = "skyrl.train.sft_trainer.SFTTrainer"

#: A run with an evaluation before the first step and after each, in which nothing is saved.
_RUN: Settings = {"num_epochs": EPOCHS, "num_steps": None, "eval_interval": 1, "eval_before_train": True}

#: The setting by which the next batch is drawn while a step runs.
_AHEAD = "async_batch_collation"

_CALLER = "sft_trainer.py, load_checkpoint: the global step, and the position of the stateful data loader"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loop, in releases whose data loader keeps its position."""
    path = f"{TRAINER}.train"
    if not target.has(path) or target.fails(TRAINER):
        return
    if "self.build_train_dataloader" in inspect.getsource(target.find(path)):
        yield from bindable(target, _boundary(target, path))


class Batches(PromptLoader):
    """:class:`PromptLoader` with a batch of one token per prompt."""

    def __iter__(self) -> Iterator[Any]:
        """The remaining batches; in the next pass, all batches."""
        return (Batch(int(prompts[0]["uid"])) for prompts in super().__iter__())


class Batch(dict[str, Any]):
    """A batch of one row."""

    def __init__(self, number: int) -> None:
        """Store the index of the row."""
        super().__init__(sequences=torch.ones(1, 1), attention_mask=torch.ones(1, 1))
        self.number, self.metadata = number, dict[str, Any]()


def run_twice(owner: Any, cfg: Any, rows: int) -> dict[str, Any]:  # noqa: ANN401 - the target's classes
    """Run the loop, and run it with a restart; :func:`compare_runs` describes the result."""
    return compare_runs(lambda done: _run(owner, cfg, rows, done), rows)


def _run(owner: Any, cfg: Any, rows: int, done: int) -> Log:  # noqa: ANN401 - the target's classes
    """Train from the step after ``done`` to the end."""
    log, loader = Log("train/loss", "eval/step"), Batches(rows)

    def load(_trainer: object) -> int:
        loader.position = done % rows
        return done

    def evaluate(trainer: Any) -> tuple[dict[str, float], int]:  # noqa: ANN401 - the target's class
        log.evaluations += 1
        return {"step": trainer.global_step}, 1

    def train(_trainer: object, batch: Batch, step: int) -> dict[str, Any]:
        log.prompts.append(batch.number)
        return {"loss": float(step), "grad_norm": 0.0, "timings": {}}

    silent = dict.fromkeys(("_log_dataset_stats", "_validate_batch_parallelism", "_fire"), nothing)
    methods = {
        **silent,
        "load_dataset": lambda _trainer: list(range(rows)),
        "load_eval_datasets": lambda _trainer: [("held out", [0])],
        "build_train_dataloader": lambda _trainer, _rows: loader,
        "build_eval_dataloader": lambda _trainer, _rows: [None],
        "load_checkpoint": load,
        "run_eval": evaluate,
        "train_step": train,
        "_torch_profiler_enabled": False,
    }
    trainer = bare_instance(
        type("Trainer", (owner,), methods),
        sft_cfg=cfg,
        tracker=log,
        dispatch=SimpleNamespace(finalize_pending_saves=nothing),
        train_dataloader=None,
        eval_dataloaders=None,
        global_step=0,
        **_UNUSED,
    )
    trainer.train()
    return log


#: Attributes of a run without a monitor, callbacks and checkpoints.
_UNUSED: Mapping[str, Any] = {
    "_checkpoint_dataloader_state": None,
    "_total_tokens_processed": 0,
    "_num_training_gpus": 1,
    "_ray_gpu_monitor": None,
    "_training_control": SimpleNamespace(should_save=False, should_evaluate=False, reset=lambda: None),
}


def _boundary(target: Target, path: str) -> Boundary:
    families = {"in turn": {_AHEAD: False}, "ahead": {_AHEAD: True}} if _has(target, _AHEAD) else {"in turn": {}}
    step = Step(
        call=run_twice,
        name="run",
        arguments={
            "owner": Constant(Function(TRAINER)),
            "cfg": Config(SUPERVISED, fixed=_RUN, knobs_at={_AHEAD: _AHEAD} if _has(target, _AHEAD) else {}),
            "rows": Derived(lambda inputs: inputs.batch.rows),
        },
        produced_by={"rows": _CALLER},
        remembered=True,
    )
    settings = {f"{EPOCHS} epochs, batches {name}": family for name, family in families.items()}
    return loop_boundary(path, step, settings, "supervised fine-tuning over epochs, with an evaluation or a restart")


def _has(target: Target, field: str) -> bool:
    try:
        Config(SUPERVISED, {field: None}).check(target)
    except Unbindable:
        return False
    return True
