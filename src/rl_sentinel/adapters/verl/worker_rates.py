"""Learning rates of verl's FSDP workers before 0.8, which build the schedule beside the optimizer."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.learning_rates import KINDS, PEAK, rate_boundary, rates_of
from rl_sentinel.adapters.kit.replacement import nothing
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, constants, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.learning_rates import Section
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.claims import claims

MODULE = "verl.workers.fsdp_workers"

#: Method that builds model and optimizer -> its section of the configuration.
BUILDERS: Mapping[str, str] = {
    f"{MODULE}.ActorRolloutRefWorker._build_model_optimizer": "actor_rollout_ref.actor.optim",
    f"{MODULE}.CriticWorker._build_critic_model_optimizer": "critic.optim",
}

#: Calls that build the optimizer. One of them begins the last part of a method.
_OPTIMIZERS = ("AdamW", "build_optimizer")

#: Setting of a schedule -> the name of verl's configuration.
_NAMES = {"updates": "total_training_steps", "warm_up": "lr_warmup_steps", "floor": "min_lr_ratio"}

_DOCS = (
    "config/ppo_trainer.yaml, optim: lr_warmup_steps, warmup_style (later lr_scheduler_type) constant or cosine, and "
    "min_lr_ratio, the lowest rate of a cosine"
)
_ORDER = "fsdp_workers.py, update_actor and update_critic: the schedule steps after the updates"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each schedule that a method of :data:`BUILDERS` supports: the actor's, and the critic's."""
    for path, section in BUILDERS.items():
        if target.has(path):
            yield from try_bind(target, path, "batch", partial(_rates, target, path, section))


def rates_of_worker(method: Callable[..., Any], kind: str, count: int, **settings: float) -> list[float]:
    """Run the part of the method after it builds the model; return the rates of ``count`` updates."""
    numbers = {_NAMES[name]: value for name, value in settings.items()}
    about: dict[str, Any] = {"optimizer": "AdamW", "optimizer_impl": "torch.optim", "betas": (0.9, 0.999)}
    about |= {"weight_decay": 0.01, "override_optimizer_config": None, "num_cycles": 0.5}
    config = Section(lr=PEAK, warmup_style=kind, lr_scheduler_type=kind, **about, **numbers)
    model = torch.nn.Linear(1, 1)
    values: dict[str, Any] = {
        "optim_config": config,
        "config": Section(optim=config),
        "role": "actor",
        "actor_model_config": None,
    }
    values |= {"self": SimpleNamespace(rank=1, _is_actor=True), "actor_module_fsdp": model, "critic_module": model}
    with redirect_stdout(None):
        _, optimizer, schedule, *_ = _last_part(method)(**values, log_gpu_memory_usage=nothing)

    def advance() -> None:
        optimizer.step()
        schedule.step()

    return rates_of(optimizer, advance, count)


def _last_part(method: Callable[..., Any]) -> Callable[..., Any]:
    """The end of the method, from the statement that builds the optimizer; earlier variables are keyword arguments."""
    method = inspect.unwrap(method)
    lines, first = inspect.getsourcelines(method)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    start = next(n for n, one in enumerate(function.body) if any(f"{w}(" in ast.unparse(one) for w in _OPTIMIZERS))
    names = ("self", "config", "optim_config", "role", "actor_module_fsdp", "actor_model_config", "critic_module")
    read = {node.id for one in function.body[start:] for node in ast.walk(one) if isinstance(node, ast.Name)}
    imports = [
        one
        for one in function.body[:start]
        if isinstance(one, ast.Import | ast.ImportFrom) and {n.asname or n.name for n in one.names} & read
    ]
    function.body, function.decorator_list = [*imports, *function.body[start:]], []
    keywords = [ast.arg(arg=name) for name in (*names, "log_gpu_memory_usage")]
    function.args = ast.arguments([], [], None, keywords, [None] * len(keywords), None, [])
    ast.increment_lineno(ast.fix_missing_locations(tree), first - 1)
    made: dict[str, Any] = dict(method.__globals__)
    exec(compile(tree, method.__code__.co_filename, "exec"), made)  # noqa: S102 - the target's own statements
    part: Callable[..., Any] = made[function.name]
    return part


def _offered(target: Target) -> str:
    """The lines of the configuration that list schedules: ``warmup_style: constant  # select from constant/cosine``."""
    file = target.root / "verl" / "trainer" / "config" / "ppo_trainer.yaml"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return "\n".join(line for line in lines if "warmup_style:" in line)


def _rates(target: Target, path: str, section: str) -> Iterator[Boundary]:
    offered = inspect.getsource(inspect.unwrap(target.find(path))) + _offered(target)
    for kind, (algorithm, families) in KINDS.items():
        if kind != "constant" and not re.search(rf"""["'/]{kind}\b""", offered):
            continue
        settings = {f"{kind}, {name}": family for name, family in families.items()}
        arguments = {
            "method": Constant(Function(path)),
            "count": Derived(lambda inputs: inputs.batch.rows),
            **constants(kind=kind),
            **knobs(*next(iter(families.values()))),
        }
        step = Step(call=rates_of_worker, name="rates", arguments=arguments, produced_by={"count": _ORDER})
        reach = f"{section}.warmup_style={kind}, {section}.min_lr_ratio, every run on FSDP"
        yield rate_boundary(path, step, settings, claims(_DOCS, algorithm=algorithm), reach)
