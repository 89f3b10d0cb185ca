"""slime's evaluation: sampling parameters of each data set, rewards of its samples, and logged metrics."""

import asyncio
import inspect
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.scripted_sampling import sampling_option
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived, functions
from rl_sentinel.adapters.slime.generation import MODULES, ONE_VERSION, room_of, samples_of
from rl_sentinel.adapters.slime.rank_fakes import recording_trackers
from rl_sentinel.adapters.slime.rollout_fakes import arguments, serving
from rl_sentinel.adapters.slime.samples import SAMPLE
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import Claims, claims

CONFIG = "slime.utils.eval_config.build_eval_dataset_configs"

#: Paths of the function that logs an evaluation, newest first.
LOGS = (
    "slime.observability.rollout_metrics.log_eval_rollout_data",
    "slime.ray.rollout.log_eval_rollout_data",
    "slime.ray.rollout._log_eval_rollout_data",
)

#: Parameter of a request -> its option, and two values of it; the first value is not the default.
PARAMETERS: Mapping[str, tuple[str, tuple[Scalar, Scalar]]] = {
    "temperature": ("temperature", (0.7, 0.3)),
    "top_p": ("top_p", (0.9, 0.5)),
    "top_k": ("top_k", (20, 5)),
    "max_new_tokens": ("max_response_len", (64, 96)),
    "min_new_tokens": ("min_new_tokens", (2, 3)),
    "repetition_penalty": ("repetition_penalty", (1.1, 1.5)),
    "stop": ("stop", ("first", "other")),
    "stop_token_ids": ("stop_token_ids", ("1", "2")),
    "skip_special_tokens": ("skip_special_tokens", (True, False)),
    "no_stop_trim": ("no_stop_trim", (True, False)),
}

#: Options of the command line that override the rollout's options in an evaluation.
_COMMAND_LINE = ("temperature", "top_p", "top_k", "max_response_len", "min_new_tokens")

_PRODUCER = "slime/utils/arguments.py, _resolve_eval_datasets: names and paths of --eval-prompt-data, or --eval-config"
_CONSERVES = claims("sglang_rollout.py, eval_rollout_single_dataset: rewards of all samples, by index", conserves=True)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the rewards and requests for each source of sampling parameters, and the logged metrics."""
    module = next((name for name in MODULES if target.has(f"{name}.eval_rollout")), "")
    if not module or target.fails(module):
        return
    evaluate = f"{module}.eval_rollout"
    yield from bindable(target, *(_evaluated(target, evaluate, *source) for source in _sources(target)))
    yield from bindable(target, _by_key(target, evaluate))
    log = next((path for path in LOGS if target.has(path)), "")
    if log:
        yield from bindable(target, _logged(target, evaluate, log))


def _sources(target: Target) -> Iterator[tuple[str, Claims, str]]:
    """Setting, knobs and reach of each source: command line, configuration of a data set, defaults of data sets."""
    options = {f"eval_{name}": values for name, values in PARAMETERS.values() if name in _COMMAND_LINE}
    if target.has("slime.utils.arguments"):
        text = target.root.joinpath("slime", "utils", "arguments.py").read_text(encoding="utf-8")
        options = {name: values for name, values in options.items() if f"--{name.replace('_', '-')}" in text}
    cite = "arguments.py, add_eval_arguments: override the rollout version during eval"
    yield "command line", claims(cite, knobs=options), ", ".join(f"--{name.replace('_', '-')}" for name in options)
    config = "slime.utils.eval_config.EvalDatasetConfig"
    if not target.has(config) or target.fails(config):
        return
    known = _annotations(target.find(config))
    present = {name: values for name, values in PARAMETERS.values() if name in known}
    for where, cite in {
        "dataset": "eval_config.py, EvalDatasetConfig: dataset-specific overrides",
        "defaults": "eval_config.py, build_eval_dataset_configs: defaults apply to fields that no data set sets",
    }.items():
        knobs = {f"{where}.{name}": values for name, values in present.items()}
        yield f"--eval-config, {where}", claims(cite, knobs=knobs), f"--eval-config with eval.{where}"


def _annotations(owner: type) -> set[str]:
    return {name for kind in owner.__mro__ for name in vars(kind).get("__annotations__", {})}


def run_evaluation(  # noqa: PLR0913 - functions of the target, and the arguments of an evaluation
    evaluate: Callable[..., Any],
    sample: Callable[..., Any],
    configure: Callable[..., Any] | None,
    rows: list[dict[str, Any]],
    room: int,
    options: Settings,
    log: Callable[..., Any] | None = None,
) -> dict[str, Any]:
    """Run an evaluation; return the reward of each row, the parameters of its first request, and logged metrics."""
    (samples,), server = samples_of(sample, [rows])
    server.room = room
    values = {name: sampling_option(name, value) for name, value in options.items()}
    run = arguments(
        room,
        1,
        eval_prompt_data=["task", "prompts.jsonl"],
        use_wandb=True,
        partial_rollout=False,
        **{name: value for name, value in values.items() if "." not in name},
    )
    if configure is not None:
        run.eval_datasets = _configured(configure, run, values)
    with (
        serving(evaluate, server) as module,
        replaced_globals(module, Dataset=lambda *_a, **_k: SimpleNamespace(samples=samples)),
    ):
        returned: Any = asyncio.run(evaluate(run, 0))
    first: Any = returned[0] if isinstance(returned, tuple) else returned
    data: dict[str, Any] = getattr(first, "data", first)
    sent = {key: [_number(server.requests[row][0].get(key)) for row in sorted(server.requests)] for key in PARAMETERS}
    logged = _log(log, run, data) if log is not None else {}
    return {"rewards": list(data["task"]["rewards"]), **sent, "logged": logged}


def _configured(configure: Callable[..., Any], run: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - slime's class
    sections: dict[str, dict[str, Any]] = {"dataset": {}, "defaults": {}}
    for name, value in values.items():
        where, _, key = name.partition(".")
        if key:
            sections[where][key] = value
    sets = [{"name": "task", "path": "prompts.jsonl", **sections["dataset"]}]
    takes_args = "args" in inspect.signature(configure).parameters
    return configure(*([run] if takes_args else []), sets, sections["defaults"])


def _number(value: object) -> float:
    """A parameter as a number: -1 for None, and a checksum for values that are not numbers."""
    if isinstance(value, int | float):
        return float(value)
    return -1.0 if value is None else float(zlib.crc32(repr(value).encode()) % 1000)


def _log(log: Callable[..., Any], run: Any, data: dict[str, Any]) -> dict[str, float]:  # noqa: ANN401 - a namespace
    logged: dict[str, Any] = {}
    with replaced_globals(log.__globals__, **recording_trackers(logged), print=lambda *_a, **_k: None):
        log(0, run, data)
    return {name: float(value) for name, value in logged.items() if name.startswith("eval/task")}


def _step(target: Target, evaluate: str, log: str = "") -> Step:
    return Step(
        call=run_evaluation,
        name="evaluated",
        arguments={
            **functions(evaluate=evaluate, sample=SAMPLE),
            "configure": Constant(Function(CONFIG) if target.has(CONFIG) else None),
            "rows": EachRow(Table(ONE_VERSION)),
            "room": Derived(room_of),
            "options": AllSettings(),
            **({"log": Constant(Function(log))} if log else {}),
        },
        produced_by={"rows": _PRODUCER},
    )


def _evaluated(target: Target, evaluate: str, setting: str, knobs: Claims, reach: str) -> Boundary:
    result, form = Use("evaluated"), PerRow("list")
    return Boundary(
        path=f"{CONFIG} -> {evaluate}" if target.has(CONFIG) else evaluate,
        stage="batch",
        steps=(_step(target, evaluate),),
        reads=frozenset({"reward", "length"}),
        outputs={"reward": Output("B", "reward", "reward", at=result["rewards"], form=form)}
        | {name: Output("B", "", at=result[name], form=form) for name in PARAMETERS},
        settings={setting: {}},
        claims=_CONSERVES | knobs,
        reach=reach,
        requires=(no_empty_response,),
    )


def _by_key(target: Target, evaluate: str) -> Boundary:
    """The boundary of rewards in an evaluation with another reward key than training.

    The key has no other effect.
    """
    boundary = _evaluated(target, evaluate, "reward by key", Claims(), "--eval-reward-key, --reward-key")
    settings: Settings = {"eval_reward_key": "score", "reward_key": "acc"}
    outputs = {"reward": boundary.outputs["reward"]}
    return replace(boundary, settings={"reward by key": settings}, outputs=outputs)


def _logged(target: Target, evaluate: str, log: str) -> Boundary:
    outputs = {
        "eval/task": Output("", "reward", "outcome.mean", over="all"),
        "eval/task-truncated_ratio": Output("", "", "full_length.mean", over="all"),
    }
    return Boundary(
        path=f"{evaluate} -> {log}",
        stage="metric",
        steps=(_step(target, evaluate, log),),
        reads=frozenset({"reward", "length"}),
        outputs={name: replace(output, at=Use("evaluated")["logged"][name]) for name, output in outputs.items()},
        claims=claims(
            "rollout_metrics.py, log_eval_rollout_data: the share of truncated samples",
            output_definitions={"eval/task-truncated_ratio": "no room left"},
        ),
        reach="every evaluation",
        requires=(no_empty_response,),
    )
