"""Boundary of verl's training loop: the prompts of a whole run, and of a run that resumes from a checkpoint."""

import inspect
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, IfSet, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.data_loader import MODULE, fills_two_batches
from rl_sentinel.adapters.verl.numbered_prompts import Columns
from rl_sentinel.adapters.verl.training_run_fakes import (
    Logger,
    SkipManager,
    Timer,
    in_process_loader,
    no_bar,
    train,
    trainer_of,
)
from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

TRAINER = f"{MODULE}.RayPPOTrainer"
PATH = f"{TRAINER}.fit"

#: The trainer's names of the folder of a checkpoint, and of the file with the newest step.
STEP_FOLDER, NEWEST = "global_step_{}", "latest_checkpointed_iteration.txt"

#: Width of a response.
WIDTH = 2

#: Maximum number of prompts; an epoch of two prompts a step has three steps then.
PROMPTS = 6

#: Where a run is restored: after the first step, after the first epoch, and after the first step of the second one.
RESTORES = ("inside an epoch", "between epochs", "inside the second epoch")

#: Counters that the loop logs at each step -> their names here.
COUNTERS: Mapping[str, str] = {"training/epoch": "epochs", "training/global_step": "steps"}

#: A run in one process, without validation.
RUN: Mapping[str, Any] = {
    "data.dataloader_num_workers": 0,
    "trainer.test_freq": -1,
    "trainer.val_before_train": False,
    "trainer.resume_mode": "auto",
    "trainer.n_gpus_per_node": 1,
    "trainer.nnodes": 1,
}

#: Two prompts a step, two responses each, with a checkpoint after each step.
_SAVED: Mapping[str, Any] = {
    **RUN,
    "data.seed": 1,
    "data.train_batch_size": 2,
    "actor_rollout_ref.rollout.n": 2,
    "algorithm.adv_estimator": "grpo",
    "trainer.save_freq": 1,
    "trainer.balance_batch": False,
}

_EPOCHS: Settings = {"data.shuffle": True, "trainer.total_epochs": 2}

_KNOBS: Mapping[str, tuple[Scalar, Scalar]] = {
    "trainer.total_epochs": (2, 1),
    "trainer.total_training_steps": (1, 2),
}

#: Weights that sample in a synchronous run.
NEWEST_WEIGHTS = "newest weights"

#: Names under which releases import the timer class of the package codetiming.
_TIMERS = (
    f"{MODULE}.Timer",
    "verl.utils.debug.performance.Timer",
    "verl.utils.profiler.performance.Timer",
)

_DOCS = (
    "docs/examples/config.rst, trainer: total_epochs, total_training_steps, resume_mode; docs/advance/checkpoint.rst"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training loop over two epochs, also after a restore from a checkpoint."""
    if can_run(target) and all(target.has(f"{TRAINER}.{name}") for name in ("_load_checkpoint", "_save_checkpoint")):
        yield from try_bind(target, PATH, "batch", lambda: [_loop(target)])


def can_run(target: Target) -> bool:
    """Whether the loop of this release can run: it needs stateful loaders."""
    loaders = f"{TRAINER}._create_dataloader"
    if not target.has(PATH) or not target.has(loaders) or target.fails(PATH):
        return False
    stateful = not target.fails("torchdata.stateful_dataloader.StatefulDataLoader")
    return stateful and "StatefulDataLoader" in inspect.getsource(target.find(loaders))


def fakes(target: Target) -> dict[str, Callable[..., Any]]:
    """Fakes for the processes of the data loaders, the logger, the progress bar and the timers."""
    replaced: dict[str, Callable[..., Any]] = {
        f"{MODULE}.StatefulDataLoader": in_process_loader,
        "verl.utils.tracking.Tracking": Logger,
        f"{MODULE}.tqdm": no_bar,
        f"{MODULE}.SkipManager": SkipManager,
        "verl.protocol.pd": Columns,
        **dict.fromkeys(_TIMERS, Timer),
    }
    return present(target, replaced)


def sampled(numbers: list[int], greedy: list[bool]) -> dict[str, Tensor]:
    """Rows of a prompt token and two response tokens; rewards alternate between 0 and 1."""
    rows = len(greedy)
    prompt = torch.tensor(numbers).unsqueeze(1)
    response = torch.ones(rows, WIDTH, dtype=torch.int64)
    reward = torch.zeros(rows, WIDTH)
    reward[:, -1] = torch.arange(rows, dtype=torch.float32) % 2
    return {
        "prompts": prompt,
        "responses": response,
        "response_mask": response.clone(),
        "input_ids": torch.cat([prompt, response], dim=1),
        "attention_mask": torch.ones(rows, 1 + WIDTH, dtype=torch.int64),
        "position_ids": torch.arange(1 + WIDTH).repeat(rows, 1),
        "rm_scores": reward,
        "own_log_probs": -torch.ones(rows, WIDTH),
    }


#: Makes a trainer of a class, for a configuration and a number of prompts, with its checkpoints in a folder.
Make = Callable[[Any, Any, int, Path], Any]


def make_trainer(kind: Any, config: Any, prompts: int, folder: Path) -> Any:  # noqa: ANN401 - classes of the target
    """A trainer whose rollout samples the rows of :func:`sampled`."""
    return trainer_of(kind, config, prompts, sampled, folder)


def run_and_resume(kind: Any, config: Any, prompts: int, make: Make) -> dict[str, Any]:  # noqa: ANN401 - classes of the target
    """Train; then restore at each of :data:`RESTORES`, and continue from there.

    Returns:
        ``uses``: the number of draws of each prompt per epoch; ``steps``: the number of steps; for the rest of the run
        after each restore point, without and with the restart: the number of draws and the first and last position of
        each prompt, and the sums of the logged counters; for the run and for the restarts: by how many updates, at
        most, the weights that sampled each prompt were behind.
    """
    pristine = pickle.dumps(config)  # the trainer changes its own; ``deepcopy`` takes four times as long
    behind: dict[str, list[float]] = {when: [0.0] * prompts for when in ("the run", "a restart")}
    with tempfile.TemporaryDirectory() as place:
        first = make(kind, _copy_of(pristine), prompts, Path(place))
        drawn, counted = _drawn(first, behind["the run"]), _counters()
        order = [number for step in drawn for number in step]
        counts = torch.tensor([float(order.count(number)) for number in range(prompts)])
        answer: dict[str, Any] = {"uses": counts / config.trainer.total_epochs, "steps": float(len(drawn))}
        epoch = len(first.train_dataloader)
        for name, last in zip(RESTORES, (1, epoch, epoch + 1), strict=True):
            step = min(last, len(drawn))
            with tempfile.TemporaryDirectory() as copy:
                restart_from(step, Path(place), Path(copy))
                again = make(kind, _copy_of(pristine), prompts, Path(copy))
                rest, restored = drawn[step:], _drawn(again, behind["a restart"])
                answer |= _counted(f"without a restart {name}", counted[step:])
                answer |= _counted(f"after a restart {name}", _counters())
            answer |= _places(f"without a restart {name}", rest, prompts)
            answer |= _places(f"after a restart {name}", restored, prompts)
    return answer | {f"updates behind in {when}": torch.tensor(most) for when, most in behind.items()}


def _copy_of(pickled: bytes) -> Any:  # noqa: ANN401 - an OmegaConf configuration
    return pickle.loads(pickled)  # noqa: S301 - made by run_and_resume


def _drawn(trainer: Any, behind: list[float]) -> list[list[int]]:  # noqa: ANN401 - a trainer of the target
    """Train; return the prompts of each step. Update ``behind`` to the maximum of old and new numbers."""
    train(trainer)
    drawn: list[list[int]] = trainer.actor_rollout_wg.drawn
    for numbers, late in zip(drawn, trainer.actor_rollout_wg.behind, strict=True):
        for number in numbers:
            behind[number] = max(behind[number], float(late))
    return drawn


def _counters() -> list[dict[str, Any]]:
    """The metrics of the steps that log a counter."""
    return [one for one in Logger.logged if any(name in one for name in COUNTERS)]


def _counted(name: str, steps: list[dict[str, Any]]) -> dict[str, float]:
    """The sum of each counter over the steps; a counter that is not logged is 0."""
    return {f"logged {short} {name}": float(sum(one.get(key, 0) for one in steps)) for key, short in COUNTERS.items()}


def restart_from(step: int, saved: Path, folder: Path) -> None:
    """Create a folder of checkpoints in which the checkpoint of ``step`` is the newest."""
    (folder / STEP_FOLDER.format(step)).symlink_to(saved / STEP_FOLDER.format(step))
    (folder / NEWEST).write_text(str(step), encoding="utf-8")


def _places(name: str, steps: list[list[int]], prompts: int) -> dict[str, Tensor]:
    """``[B]``: how often each prompt is in the steps, and its first and last position, -1 if it is missing."""
    order = [number for step in steps for number in step]
    places = [[at for at, number in enumerate(order) if number == own] for own in range(prompts)]
    return {
        f"number of draws {name}": torch.tensor([float(len(one)) for one in places]),
        f"position of first draw {name}": torch.tensor([float(one[0]) if one else -1.0 for one in places]),
        f"position of last draw {name}": torch.tensor([float(one[-1]) if one else -1.0 for one in places]),
    }


def few_prompts(batch: Batch) -> Batch:
    """The first :data:`PROMPTS` rows: each row is one prompt, and prompts do not depend on each other."""
    return take_rows(batch, torch.arange(PROMPTS)) if batch.rows > PROMPTS else batch


def _loop(target: Target) -> Boundary:
    publishes = "checkpoint_manager.update_weights" in inspect.getsource(inspect.unwrap(target.find(PATH)))
    return run_boundary(target, PATH, TRAINER, make_trainer, fakes(target), publishes=publishes)


def run_boundary(  # noqa: PLR0913 - the parts in which the trainers differ
    target: Target,
    path: str,
    owner: str,
    make: Make,
    replaced: Mapping[str, Callable[..., Any]],
    *,
    publishes: bool,
    reach: str = "a run that is restarted from a checkpoint",
) -> Boundary:
    """The boundary of a trainer's loop; with ``publishes``, the loop sends the weights to the rollout."""
    limit = "trainer.total_training_steps"
    fields: dict[str, Codec] = constants(**_SAVED)
    fields |= {limit: IfSet(limit), **{name: Knob(name, value) for name, value in _EPOCHS.items()}}
    result, form = Use("run"), PerRow()
    source = inspect.getsource(inspect.unwrap(target.find(path)))
    outputs = {"uses": Output("B", "samples", "uses", at=result["uses"], form=form)}
    outputs["steps"] = Output("", "", at=result["steps"])
    for when in RESTORES:
        for what in ("number of draws", "position of first draw", "position of last draw"):
            own, other = f"{what} without a restart {when}", f"{what} after a restart {when}"
            outputs[own] = Output("B", "samples", f"uninterrupted.{what} {when}", at=result[own], form=form)
            outputs[other] = Output("B", "samples", f"resumed.{what} {when}", at=result[other], form=form)
        for what in (f"logged {short}" for key, short in COUNTERS.items() if key in source):
            own, other = f"{what} without a restart {when}", f"{what} after a restart {when}"
            outputs[own] = Output("", "", f"uninterrupted.{what} {when}", at=result[own])
            outputs[other] = Output("", "", f"resumed.{what} {when}", at=result[other])
    ages = {f"updates behind in {when}": NEWEST_WEIGHTS for when in ("the run", "a restart") if publishes}
    outputs |= {name: Output("B", "updates", "updates_behind", at=result[name], form=form) for name in ages}
    return one_call(
        path=path,
        stage="batch",
        call=run_and_resume,
        name="run",
        arguments={
            "kind": Constant(Function(owner)),
            "config": default_config(target, "", fields, resolved=True),
            "prompts": Derived(lambda inputs: inputs.batch.rows),
            "make": Constant(make),
        },
        remembered=True,
        fakes=replaced,
        produced_by={"config": "verl/trainer/config: the configuration files of the release"},
        reads=frozenset({"group"}),
        outputs=outputs,
        settings={"two epochs": _EPOCHS},
        claims=claims(_DOCS, knobs=dict(_KNOBS), output_algorithms=ages),
        reach=reach,
        requires=(fills_two_batches,),
        domain=few_prompts,
    )
