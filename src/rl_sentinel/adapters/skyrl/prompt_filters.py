"""SkyRL's prompt filters: drop prompts whose rewards are all equal, or sample other prompts instead."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Labels
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import (
    group_sizes,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_fields
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.skyrl.arguments import UIDS, config
from rl_sentinel.adapters.skyrl.rollout import GENERATED, generated
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Inputs

FILTER = "skyrl.train.utils.trainer_utils.zero_variance_filter"
SAMPLING = "skyrl.train.utils.trainer_utils.handle_filter_sampling"
KEEP_GROUP = "skyrl.train.fully_async_trainer.FullyAsyncRayPPOTrainer._should_keep_group"

_INFORMATIVE = claims(
    "trainer_utils.py, handle_filter_sampling: filter out groups with std == 0 and group size > 1",
    scope="group",
    algorithm="prompts with unequal rewards",
)
_VARIED = claims(
    "trainer_utils.py, zero_variance_filter: dropped only when it has >1 live trajectory and no reward spread",
    scope="group",
    algorithm="prompts but those of equal live rewards",
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the filter before training, dynamic sampling, and the filter of the asynchronous trainer."""
    if target.has(FILTER):
        yield from bindable(target, _zero_variance(target))
    if target.has(SAMPLING):
        yield from bindable(target, _filter_sampling())
    if target.has(FILTER) and target.has(KEEP_GROUP) and not target.fails(KEEP_GROUP):
        yield from bindable(target, _filter_of_groups())


def several_responses(inputs: Inputs) -> str:
    """The reason to skip a batch where a prompt has only one response; empty otherwise."""
    return "" if min(group_sizes(inputs)) > 1 else "a prompt has one response, which the filter always keeps"


def kept_rows(check: Callable[..., Any], rewards: list[float], uids: list[str], masks: Any) -> list[float]:  # noqa: ANN401 - lists, or None
    """1 for each row that the filter keeps, else 0."""
    kept = check(rewards, uids) if masks is None else check(rewards, uids, loss_masks=masks)
    return [float(row in kept) for row in range(len(rewards))]


def sampled_rows(handle: Callable[..., Any], output: dict[str, Any], uids: list[str], samples: int) -> list[float]:
    """1 for each row that dynamic sampling collects, else 0; the prompt of a row is the row index.

    The batch needs more prompts than were sampled, so that the collected rows can be read from the state.
    """
    rows = range(len(uids))
    numbered = {**output, "prompt_token_ids": [[row] for row in rows]}
    sizes = {"train_batch_size": len(uids) + 1, "n_samples_per_prompt": samples}
    *_, state = handle(numbered, uids, sizes, {"sample_batch_count": 1})
    collected = {prompt[0] for prompt in state["collected_generator_output"]["prompt_token_ids"]}
    return [float(row in collected) for row in rows]


def rows_of_kept_groups(
    keep: Callable[..., bool],
    cfg: Any,  # noqa: ANN401 - the target's class
    prompts: list[list[dict[str, Any]]],
    per_token: bool,  # noqa: FBT001 - a setting
) -> list[float]:
    """1 for each row of a kept group, else 0; with ``per_token``, rewards are lists that end with the outcome."""
    kept = []
    for number, rows in enumerate(prompts):
        masks = [row["mask"] for row in rows]
        rewards = [[0.0] * (len(row["mask"]) - 1) + [row["reward"]] if per_token else row["reward"] for row in rows]
        group = SimpleNamespace(uid=f"prompt-{number}", generator_output={"rewards": rewards, "loss_masks": masks})
        kept += [float(keep(SimpleNamespace(cfg=cfg), group))] * len(rows)
    return kept


def _filter_of_groups() -> Boundary:
    row = Table(row_fields("reward", "mask"))
    step = Step(
        call=rows_of_kept_groups,
        name="kept",
        arguments={
            "keep": Constant(Function(KEEP_GROUP)),
            "cfg": config({}),
            "prompts": EachPrompt(EachRow(row)),
            "per_token": Knob("per_token"),
        },
        produced_by={
            "prompts": "fully_async_trainer.py, _run_generate_for_a_group_loop: the generator's output for one prompt"
        },
    )
    boundary = _filter(f"{KEEP_GROUP} -> {FILTER}", step, _VARIED, "trainer.fully_async.sample_full_batch")
    return replace(
        boundary, settings={"a group": {"per_token": False}, "a group, reward per token": {"per_token": True}}
    )


def _zero_variance(target: Target) -> Boundary:
    takes_masks = "loss_masks" in inspect.signature(target.find(FILTER)).parameters
    masks: Codec = EachRow(RowTokens("mask", "int")) if takes_masks else Constant(None)
    return _filter(
        FILTER,
        Step(
            call=kept_rows,
            name="kept",
            arguments={
                "check": Constant(Function(FILTER)),
                "rewards": Labels("reward"),
                "uids": UIDS,
                "masks": masks,
            },
            produced_by={"rewards": GENERATED, "masks": "trainer.py, postprocess_generator_output"},
        ),
        _VARIED if takes_masks else claims("trainer_utils.py, zero_variance_filter", scope="group"),
        "trainer.algorithm.zero_variance_filter=True",
    )


def _filter_sampling() -> Boundary:
    return _filter(
        SAMPLING,
        Step(
            call=sampled_rows,
            name="kept",
            arguments={
                "handle": Constant(Function(SAMPLING)),
                "output": generated(),
                "uids": UIDS,
                "samples": Derived(lambda inputs: group_sizes(inputs)[0]),
            },
            produced_by={"output": GENERATED, "samples": "trainer.py, handle_dynamic_sampling: the configuration"},
        ),
        _INFORMATIVE,
        "trainer.algorithm.dynamic_sampling.type=filter",
        groups_are_equal,
        several_responses,
    )


def _filter(path: str, step: Step, claimed: Claims, reach: str, *more: Callable[[Inputs], str]) -> Boundary:
    reads = frozenset({"reward", "group"}) | ({"mask"} if claimed is _VARIED else frozenset())
    return Boundary(
        path=path,
        stage="correct",
        steps=(step,),
        reads=reads,
        outputs={"keep": Output("B", "", "keep", "group", form=PerRow("list"))},
        claims=claimed,
        reach=reach,
        requires=(prompts_are_contiguous, no_empty_response, *more),
    )
