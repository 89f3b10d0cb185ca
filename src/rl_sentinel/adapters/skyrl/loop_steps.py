"""SkyRL's training loops over several epochs: which prompts train after a restart, and the logged steps."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.forms import Number, PerRow
from rl_sentinel.adapters.kit.replacement import nothing, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.skyrl.arguments import CONFIG, TRAINER
from rl_sentinel.adapters.skyrl.async_rollout import TRAINER as ASYNC_TRAINER
from rl_sentinel.adapters.skyrl.loop_fakes import Client, Data, Gauges, Log, PromptLoader, Weights, nothing_later
from rl_sentinel.adapters.skyrl.staleness import LOADER, MANAGER, MANY
from rl_sentinel.adapters.skyrl.training_loop import NoBar, bare_trainer
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Inputs

EPOCHS = 2

#: A run with an evaluation before the first step and after each, in which nothing is saved.
_RUN: Settings = {
    "trainer.epochs": EPOCHS,
    "trainer.eval_interval": 1,
    "trainer.eval_before_train": True,
    "trainer.ckpt_interval": -1,
    "trainer.hf_save_interval": -1,
    "trainer.placement.colocate_all": False,
}

#: Methods of the dispatch; until January 2026, the loop sends the weights with the last three.
_DISPATCHED = (
    "finalize_pending_saves",
    "prepare_for_weight_sync",
    "broadcast_to_inference_engines",
    "finish_weight_sync",
)

#: Metrics that the fakes log in a training step and in an evaluation; their value is the number of the step.
_TRAINED, _EVALUATED = "policy/step", "eval/step"

_CALLER = (
    "trainer.py, load_checkpoints: the global step, and the position of the stateful data loader; "
    "fully_async_trainer.py: also the prompts of the epoch that are trained"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loop of each trainer of the release."""
    for owner in (TRAINER, ASYNC_TRAINER):
        path = f"{owner}.train"
        if target.has(path) and not target.fails(owner) and "ResumeMode" in inspect.getsource(target.find(path)):
            yield from bindable(target, _boundary(owner, asynchronous=owner == ASYNC_TRAINER))


def run_twice(owner: Any, loader: Any, manager: Any, cfg: Any, rows: int) -> dict[str, Any]:  # noqa: ANN401 - the target's
    """Run a trainer, and run it with a restart; :func:`compare_runs` describes the result."""
    parts = [] if loader is None else [loader, manager]
    return compare_runs(lambda done: _run(owner, parts, cfg, rows, done), rows)


def compare_runs(run: Callable[[int], Log], rows: int) -> dict[str, Any]:
    """Run to the end, and run again from a restart in the last epoch.

    Returns, per prompt, ``uses`` and ``resumed``: how often it trains without and with the restart, divided by the
    number of epochs; and ``elsewhere``: the number of metrics that the run without a restart logs at a wrong step, or
    never. ``run(step)`` trains from the step after ``step`` to the end.
    """
    stop = (EPOCHS - 1) * rows + 1
    whole, again = run(0), run(stop)
    counts = Counter(whole.prompts), Counter([*whole.prompts[:stop], *again.prompts])
    uses, resumed = ([count[row] / EPOCHS for row in range(rows)] for count in counts)
    return {"uses": uses, "resumed": resumed, "elsewhere": float(whole.elsewhere)}


def _run(owner: Any, parts: list[type], cfg: Any, rows: int, done: int) -> Log:  # noqa: ANN401
    """Train from the step after ``done`` to the end."""
    log, loader, source = Log(_TRAINED, _EVALUATED), PromptLoader(rows), inspect.getsource(owner.train)
    trainer = bare_trainer(
        owner,
        {**_methods(source, log, loader, done), "has_critic": property(lambda _self: False)},
        cfg=cfg,
        tracker=log,
        dispatch=SimpleNamespace(save_weights_for_sampler=nothing_later, **dict.fromkeys(_DISPATCHED, nothing)),
        inference_engine_client=Client(),
        generator=Client(),
        policy_model=Gauges(),
        train_dataloader=loader,
        total_training_steps=EPOCHS * rows,
        resume_mode=owner.train.__globals__["ResumeMode"]("latest"),
        trajectory_logger=None,
    )
    if parts:
        vars(trainer).update(_asynchronous(parts, loader, rows))
    ray = SimpleNamespace(get=lambda done: done)
    weights = dict.fromkeys(("InferenceWeightsManager", "ConditionalWeightsManager"), Weights)
    with replaced_globals(owner.train.__globals__, tqdm=NoBar, ray=ray, **weights):
        running = trainer.train()
        if inspect.isawaitable(running):
            asyncio.run(_finish(running))
    return log


async def _finish(running: Any) -> None:  # noqa: ANN401 - a coroutine
    await running


def _methods(source: str, log: Log, loader: PromptLoader, done: int) -> dict[str, Callable[..., Any]]:
    """Fakes of a step's methods that only record calls; ``source`` of the loop shows which results the loop reads."""

    def trained(trainer: Any, uid: str) -> dict[str, float]:  # noqa: ANN401 - the target's class
        log.prompts.append(int(uid) if uid.isdecimal() else loader.latest)  # until October 2025, a random text
        trainer.all_metrics[_TRAINED] = trainer.global_step
        return {}

    async def run_training(trainer: Any, uids: list[str]) -> dict[str, float]:  # noqa: ANN401
        return trained(trainer, uids[0])

    async def evaluate(trainer: Any, **_options: object) -> dict[str, float]:  # noqa: ANN401
        log.evaluations += 1
        return {_EVALUATED: trainer.global_step}

    async def generate(trainer: Any, prompts: object) -> Any:  # noqa: ANN401
        return await trainer.generator.generate(prompts)

    def load(_trainer: object) -> Any:  # noqa: ANN401 - what the release returns
        epoch, loader.position = divmod(done, len(loader))
        consumed = {str(row) for row in range(loader.position)}
        many = [*([consumed] if "consumed" in source else []), *([set(), epoch] if "loaded_epoch" in source else [])]
        alone = "self.global_step = self.load_checkpoints()" in source
        return done if alone else (done, "checkpoint", *many)

    def postprocess(_trainer: object, output: Any, uids: list[str]) -> Any:  # noqa: ANN401 - what the release returns
        return (output, uids) if "generator_output, uids = self.postprocess" in source else output

    same = dict.fromkeys(
        ("fwd_logprobs_values_reward", "compute_advantages_and_returns", "_remove_tail_data"),
        lambda _trainer, data: data,
    )
    silent = dict.fromkeys(("_fire", "_profiler_start", "_profiler_step", "_profiler_stop"), nothing)
    return {
        **same,
        **silent,
        "train_critic_and_policy": lambda trainer, data: trained(trainer, data.uid),
        "_run_training": run_training,
        "eval": evaluate,
        "generate": generate,
        "load_checkpoints": load,
        "postprocess_generator_output": postprocess,
        "convert_to_training_input": lambda _trainer, _output, uids: Data(uids),
        "convert_generation_group_mini_batch_to_training_input": lambda _trainer, groups, *_more: [
            group.uid for group in groups
        ],
        "sync_policy_weights_to_inference_engines": nothing,
        "async_sync_policy_weights_to_inference_engines": nothing_later,
    }


def _asynchronous(parts: list[type], loader: PromptLoader, rows: int) -> dict[str, Any]:
    """The attributes of the asynchronous trainer: one worker, and mini-batches of one prompt."""
    make_loader, make_manager = parts
    sizes = {"max_concurrent_generation_groups": MANY, "mini_batch_size": 1, "max_staleness_steps": 0}
    return {
        "num_parallel_generation_workers": 1,
        "mini_batch_size": 1,
        "max_staleness_steps": 0,
        "sample_full_batch": False,
        "num_steps_per_epoch": rows,
        "async_train_dataloader": make_loader(loader, 1),
        "_staleness_manager": make_manager(**sizes),
        "_gen_buffer_maxsize": 1,
        **dict.fromkeys(("_phase_gauge", "_loop_gauges"), Gauges()),
    }


def _two_prompts(inputs: Inputs) -> str:
    return "" if inputs.batch.rows > 1 else "the run stops within an epoch, which needs two prompts or more"


def _boundary(owner: str, *, asynchronous: bool) -> Boundary:
    parts = {"loader": LOADER, "manager": MANAGER}
    step = Step(
        call=run_twice,
        name="run",
        arguments={
            "owner": Constant(Function(owner)),
            **{name: Constant(Function(path) if asynchronous else None) for name, path in parts.items()},
            "cfg": Config(CONFIG, fixed=_RUN),
            "rows": Derived(lambda inputs: inputs.batch.rows),
        },
        produced_by={"rows": _CALLER},
        remembered=True,
    )
    reach = "every run of more than one epoch, with an evaluation or a restart"
    return loop_boundary(f"{owner}.train", step, {f"{EPOCHS} epochs": {}}, reach)


def loop_boundary(path: str, step: Step, settings: Mapping[str, Settings], reach: str) -> Boundary:
    """A boundary whose step returns the result of :func:`compare_runs`."""
    run, form = Use(step.result), PerRow("list")
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        reads=frozenset({"group"}),
        outputs={
            "uses": Output("B", "samples", "uses", at=run["uses"], form=form),
            "uses without a restart": Output("B", "samples", "uninterrupted.uses", at=run["uses"], form=form),
            "uses with a restart": Output("B", "samples", "resumed.uses", at=run["resumed"], form=form),
            "numbers at another step": Output("", "count", "logged_elsewhere", at=run["elsewhere"], form=Number()),
        },
        settings=settings,
        reach=reach,
        requires=(_two_prompts,),
    )
