"""The rollout batch that TRL's online trainers assemble: whether all columns of a row belong to one completion."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import (
    group_sizes,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, RLOO, Prompts
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.release import NAME, config_fields, source_of
from rl_sentinel.adapters.trl.rollout_doubles import ready_to_score
from rl_sentinel.adapters.trl.scoring import several_generations
from rl_sentinel.adapters.trl.tiny_trainer import END, make_trainer
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

_ROWS = (
    "grpo_trainer.py, _generate_and_score_completions: a dict of tensors with one row for each completion, which "
    "_prepare_inputs shuffles and splits together"
)

#: Column of what is assembled -> the number of its row, times its step in a first cell.
STEPS = {"old_per_token_logps": -0.5, "ref_per_token_logps": -0.25, "sampling_per_token_logps": -0.625}

#: A token of a completion; the number of tokens that name one, and of words for it.
FILL, NAMES, WORDS = 3, 2, 24

#: Fields of configurations that ask for fewer rows than were sampled.
KEPT = ("num_remains_in_group",)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The trainers themselves, then those that are derived of them and score completions in a way of their own."""
    for base, kind in ((GRPO, "grpo"), (RLOO, "rloo")):
        if not target.has(f"{base}.{NAME}") or target.fails(base):
            continue
        if "rewards_per_func" not in source_of(target.find(f"{base}.{NAME}")):
            continue
        derived = [path for path in _derived(target) if NAME in vars(target.find(path)) and kind == "grpo"]
        for path in (base, *derived):
            yield from bindable(target, _assembled(target, path, kind))


def _derived(target: Target) -> Iterator[str]:
    """Paths of the experimental trainers of this release that are GRPO's with changes."""
    package = "trl.experimental"
    if not target.has(package) or target.fails(package):
        return
    folder = next(iter(target.module(package).__path__))
    for place in sorted(Path(folder).glob("*/*_trainer.py")):
        module = f"{package}.{place.parent.name}.{place.stem}"
        if "GRPOTrainer" not in place.read_text(encoding="utf-8") or target.fails(module):
            continue
        for name, one in vars(target.module(module)).items():
            if inspect.isclass(one) and one.__module__ == module and issubclass(one, target.find(GRPO)):
                yield f"{module}.{name}"


def _assembled(target: Target, path: str, kind: str) -> Boundary:
    vllm = "use_vllm" in config_fields(target, kind) and "importance_sampling_ratio" in source_of(
        target.find(f"{path}.{NAME}")
    )
    settings: Settings = {"num_iterations": 2, **({"use_vllm": True} if vllm else {})}
    own = path not in (GRPO, RLOO)
    parts: dict[str, Codec] = {name: Constant(value) for name, value in {"kind": kind, **settings}.items()}
    parts |= {"derived": Constant(Function(path))} if own else {}
    at = {"derived": "__class__", **{name: f"args.{name}" for name in settings}}
    step = Step(
        call=assemble,
        name="made",
        arguments={
            "entry": Constant(Function(f"{path}.{NAME}")),
            "derived": Constant(own),
            "base": Object(make_trainer, parts, at=at, shared=True),
            "prompts": Prompts(),
            "rewards": Column("reward", PerRow("list")),
            "lengths": ResponseMask(NoPadding()),
            "generations": Derived(lambda inputs: max(group_sizes(inputs))),
        },
        produced_by={"prompts": _ROWS},
    )
    form = PerRow("list")
    return Boundary(
        path=f"{path}.{NAME}",
        stage="batch",
        steps=(step,),
        outputs={
            "advantage": Output("B", "reward", at=Use("made")["advantages"], form=form),
            "columns of others": Output("B", "count", "columns_of_others", at=Use("made")["others"], form=form),
        },
        settings={"columns of rows": {}},
        claims=claims(_ROWS),
        reach="every rollout",
        requires=(
            no_empty_response,
            prompts_are_contiguous,
            groups_are_equal,
            some_are_dropped if own else several_generations,
        ),
    )


def some_are_dropped(inputs: Inputs) -> str:
    """A group of which one completion is dropped still has two."""
    return "" if max(group_sizes(inputs)) > 2 else "of two completions none can be dropped"


def assemble(  # noqa: PLR0913 - a rollout and what it answers
    entry: Callable[..., Any],
    base: Any,  # noqa: ANN401 - a trainer
    prompts: list[dict[str, str]],
    rewards: list[float],
    lengths: Tensor,
    generations: int,
    *,
    derived: bool,
) -> dict[str, list[float]]:
    """The advantage of each completion that is kept, and how many columns of its row are those of another one."""
    rows, counts = len(prompts), lengths.sum(1).tolist()
    numbers, width = torch.arange(1.0, rows + 1).unsqueeze(1), int(max(counts)) + NAMES
    ready = ready_to_score(
        base,
        generations,
        completions=[[*named(row), *[FILL] * (count - 1), END] for row, count in enumerate(counts)],
        rewards=rewards,
        old_logprobs=(numbers * STEPS["old_per_token_logps"]).expand(rows, width),
        ref_logprobs=(numbers * STEPS["ref_per_token_logps"]).expand(rows, width),
        sampler_logprobs=[
            [(row + 1) * STEPS["sampling_per_token_logps"]] * (count + NAMES) for row, count in enumerate(counts)
        ],
    )
    if derived:
        derive(ready, entry, generations)
    found = entry(ready, prompts)
    samples = [named(row) for row in range(rows)]
    of = [samples.index(ids[:NAMES].tolist()) for ids in found["completion_ids"]]
    others, advantages = [0.0] * rows, [0.0] * rows
    for place, row in enumerate(of):
        advantages[row] = float(found["advantages"][place])
        for name, step in STEPS.items():
            column = found.get(name)
            if isinstance(column, Tensor):
                others[row] += len(column) != len(of) or round(float(column[place, 0]) / step) != row + 1
        weights = found.get("importance_sampling_ratio")
        if isinstance(weights, Tensor):
            others[row] += len(weights) != len(of)
    return {"advantages": advantages, "others": others}


def named(row: int) -> list[int]:
    """Two tokens that tell a completion from all others."""
    return [FILL + 1 + row % WORDS, FILL + 1 + row // WORDS]


def derive(trainer: Any, entry: Callable[..., Any], generations: int) -> None:  # noqa: ANN401 - a trainer
    """Ready a trainer that samples and filters in its own way: fewer rows are kept, and what samples is replaced."""
    for name in KEPT:
        if hasattr(trainer, name):
            setattr(trainer, name, max(1, generations - 1))
    names = unpacked(entry, "_generate")
    if names:
        trainer._generate = partial(sampled, trainer, names)  # noqa: SLF001 - where it samples


def sampled(trainer: Any, names: tuple[str, ...], prompts: list[Any], *_more: object, **_options: object) -> Any:  # noqa: ANN401 - a trainer
    """What sampling gives for all prompts, under the names by which the caller unpacks it."""
    rollout = trainer.rollout
    answers = {
        "prompt": [[3]] * len(prompts),
        "completion": rollout.completions,
        "num": torch.tensor(float(sum(map(len, rollout.completions)))),
        "sampling": rollout.sampler_logprobs if trainer.use_vllm else None,
        "extra": {},
    }
    return tuple(next((v for n, v in answers.items() if name.startswith(n)), None) for name in names)


def unpacked(function: Callable[..., Any], method: str) -> tuple[str, ...]:
    """The names to which a function assigns what a method of its own object returns."""
    tree = ast.parse(textwrap.dedent(source_of(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Tuple):
            call = node.value.func
            if isinstance(call, ast.Attribute) and call.attr == method:
                return tuple(one.id for one in node.targets[0].elts if isinstance(one, ast.Name))
    return ()
