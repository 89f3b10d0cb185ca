"""TRL's rollout batch: a check that all columns of a row describe the same completion."""

import ast
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
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
from rl_sentinel.adapters.trl.rollout_fakes import ready_to_score
from rl_sentinel.adapters.trl.scoring import several_generations
from rl_sentinel.adapters.trl.subclasses import overriding
from rl_sentinel.adapters.trl.tiny_trainer import END, make_trainer
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

_ROWS = (
    "grpo_trainer.py, _generate_and_score_completions: a dict of tensors with one row for each completion, which "
    "_prepare_inputs shuffles and splits together"
)

#: Column of the batch -> factor: the column's value in row n (from 1) is n times the factor.
STEPS = {"old_per_token_logps": -0.5, "ref_per_token_logps": -0.25, "sampling_per_token_logps": -0.625}

#: Filler token of completions; how many tokens identify a completion, and from how many ids they are drawn.
FILL, ID_TOKENS, WORDS = 3, 2, 24

#: Fields of configurations with the number of completions that a trainer keeps of a group.
KEPT_COUNTS = ("num_remains_in_group",)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the trainers of GRPO and RLOO, and the GRPO subclasses that override the scoring method."""
    for base, kind in ((GRPO, "grpo"), (RLOO, "rloo")):
        if not target.has(f"{base}.{NAME}") or target.fails(base):
            continue
        if "rewards_per_func" not in source_of(target.find(f"{base}.{NAME}")):
            continue
        for path in (base, *(overriding(target, NAME) if kind == "grpo" else ())):
            yield from bindable(target, _rows(target, path, kind))


def _rows(target: Target, path: str, kind: str) -> Boundary:
    vllm = "use_vllm" in config_fields(target, kind) and "importance_sampling_ratio" in source_of(
        target.find(f"{path}.{NAME}")
    )
    settings: Settings = {"num_iterations": 2, **({"use_vllm": True} if vllm else {})}
    is_subclass = path not in (GRPO, RLOO)
    dropping = [
        f"{name} below num_generations" for name in KEPT_COUNTS if name in source_of(target.find(f"{path}.{NAME}"))
    ]
    parts: dict[str, Codec] = {name: Constant(value) for name, value in {"kind": kind, **settings}.items()}
    parts |= {"derived": Constant(Function(path))} if is_subclass else {}
    at = {"derived": "__class__", **{name: f"args.{name}" for name in settings}}
    form = PerRow("list")
    return one_call(
        path=f"{path}.{NAME}",
        stage="batch",
        call=score_rollout,
        name="scored",
        arguments={
            "entry": Constant(Function(f"{path}.{NAME}")),
            "derived": Constant(is_subclass),
            "base": Object(make_trainer, parts, at=at, shared=True),
            "prompts": Prompts(),
            "rewards": Column("reward", PerRow("list")),
            "lengths": ResponseMask(NoPadding()),
            "generations": Derived(lambda inputs: max(group_sizes(inputs))),
        },
        produced_by={"prompts": _ROWS},
        outputs={
            "advantage": Output("B", "reward", at=Use("scored")["advantages"], form=form),
            "number of columns from other samples": Output(
                "B", "count", "columns_of_others", at=Use("scored")["others"], form=form
            ),
        },
        settings={"columns of rows": {}},
        claims=claims(_ROWS),
        reach=", ".join([*dropping, "num_iterations above 1"]) if dropping else "every rollout",
        requires=(
            no_empty_response,
            prompts_are_contiguous,
            groups_are_equal,
            three_completions if is_subclass else several_generations,
        ),
    )


def three_completions(inputs: Inputs) -> str:
    """The reason to skip a batch with fewer than three completions per prompt; empty otherwise.

    The trainer drops one completion, and at least two must remain.
    """
    return (
        ""
        if max(group_sizes(inputs)) > 2
        else "the trainer drops one completion, so fewer than two completions of a prompt remain"
    )


def score_rollout(  # noqa: PLR0913 - a method of the target, a trainer, and a rollout
    entry: Callable[..., Any],
    base: Any,  # noqa: ANN401 - a trainer
    prompts: list[dict[str, str]],
    rewards: list[float],
    lengths: Tensor,
    generations: int,
    *,
    derived: bool,
) -> dict[str, list[float]]:
    """Score a rollout, and check the rows of the returned batch.

    Returns, per completion, ``advantages``: its advantage, 0 if it was dropped; and ``others``: how many columns of its
    row describe another completion.
    """
    rows, counts = len(prompts), lengths.sum(1).tolist()
    numbers, width = torch.arange(1.0, rows + 1).unsqueeze(1), int(max(counts)) + ID_TOKENS
    ready = ready_to_score(
        base,
        generations,
        completions=[[*id_tokens(row), *[FILL] * (count - 1), END] for row, count in enumerate(counts)],
        rewards=rewards,
        old_logprobs=(numbers * STEPS["old_per_token_logps"]).expand(rows, width),
        ref_logprobs=(numbers * STEPS["ref_per_token_logps"]).expand(rows, width),
        sampler_logprobs=[
            [(row + 1) * STEPS["sampling_per_token_logps"]] * (count + ID_TOKENS) for row, count in enumerate(counts)
        ],
    )
    if derived:
        prepare_subclass(ready, entry, generations)
    batch = entry(ready, prompts)
    samples = [id_tokens(row) for row in range(rows)]
    kept = [samples.index(ids[:ID_TOKENS].tolist()) for ids in batch["completion_ids"]]
    others, advantages = [0.0] * rows, [0.0] * rows
    for place, row in enumerate(kept):
        advantages[row] = float(batch["advantages"][place])
        for name, step in STEPS.items():
            column = batch.get(name)
            if isinstance(column, Tensor):
                others[row] += len(column) != len(kept) or round(float(column[place, 0]) / step) != row + 1
        weights = batch.get("importance_sampling_ratio")
        if isinstance(weights, Tensor):
            others[row] += len(weights) != len(kept)
    return {"advantages": advantages, "others": others}


def id_tokens(row: int) -> list[int]:
    """Two token ids that identify a completion."""
    return [FILL + 1 + row % WORDS, FILL + 1 + row // WORDS]


def prepare_subclass(trainer: Any, entry: Callable[..., Any], generations: int) -> None:  # noqa: ANN401 - a trainer
    """Prepare a subclass: replace its sampling method, and let its filter drop one completion."""
    for name in KEPT_COUNTS:
        if hasattr(trainer, name):
            setattr(trainer, name, max(1, generations - 1))
    names = unpacked_names(entry, "_generate")
    if names:
        trainer._generate = partial(generate, trainer, names)  # noqa: SLF001 - the method that samples


def generate(trainer: Any, names: tuple[str, ...], prompts: list[Any], *_more: object, **_options: object) -> Any:  # noqa: ANN401 - a trainer
    """A fake ``_generate``: it returns the known rollout, in the order of the names that its caller unpacks."""
    rollout = trainer.rollout
    # DPPO reads log-probs of the sampler without vLLM, too.
    sampled = trainer.use_vllm or any(name.startswith("topk") for name in names)
    values = {
        "prompt": [[3]] * len(prompts),
        "completion": rollout.completions,
        "num": torch.tensor(float(sum(map(len, rollout.completions)))),
        "sampling": rollout.sampler_logprobs if sampled else None,
        "extra": {},
        "forward": {},
    }
    return tuple(next((v for n, v in values.items() if name.startswith(n)), None) for name in names)


def unpacked_names(function: Callable[..., Any], method: str) -> tuple[str, ...]:
    """The names to which a function assigns the items of the result of ``self.method()``; empty if it does not."""
    tree = ast.parse(textwrap.dedent(source_of(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Tuple):
            call = node.value.func
            if isinstance(call, ast.Attribute) and call.attr == method:
                return tuple(name.id for name in node.targets[0].elts if isinstance(name, ast.Name))
    return ()
