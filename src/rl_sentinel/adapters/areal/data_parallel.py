"""AReaL's distribution of trajectories over data-parallel ranks, by the ranks themselves or by a controller."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.arguments import ROLLOUT, padded_to_longest, rollout
from rl_sentinel.adapters.areal.batches import without_padding
from rl_sentinel.adapters.areal.micro_batches import KEYS
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import PromptIds
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import Cast, PerRow
from rl_sentinel.adapters.kit.rank_threads import gather_from_ranks, rank_count, rank_number, run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import (
    group_sizes,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.sequences import RaggedSequence
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

PAD = "areal.utils.data.concat_padded_tensors"
GATHER = "areal.utils.data.all_gather_tensor_container"

#: Functions that redistribute trajectories, newest first: a list of them per rank, or one batch per rank.
REDISTRIBUTE = (
    "areal.infra.dist_rollout.redistribute_trajectories",
    "areal.infra.dist_rollout.redistribute",
    "areal.utils.redistributor.redistribute",
)

CONTROLLER = "areal.infra.controller.train_controller.TrainController"
PREPARE, COLLECT = f"{CONTROLLER}._prepare_dispatch", f"{CONTROLLER}._collect_results"

#: Data-parallel ranks, and the ranks of each that share its data, which are numbered one after another.
RANKS, COPIES = 2, 2

#: The images of trajectories: a list with one entry per trajectory. Revisions without images do not have this key.
IMAGES = "multi_modal_input"

_CALLER = (
    "areal/infra/workflow_executor.py: concat_padded_tensors of the trajectories of a prompt, one item per prompt; "
    "each data-parallel head samples as many prompts as the others"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the redistribution among ranks, and the dispatch of a controller with the merge of its results."""
    path = next((path for path in REDISTRIBUTE if target.has(path) and not target.fails(path)), "")
    if path and target.has(PAD) and target.has(GATHER):
        yield from bindable(target, *_with_images(target, _redistributed(path)))
    if target.has(PREPARE) and target.has(COLLECT) and not target.fails(PREPARE):
        yield from bindable(target, *_with_images(target, _dispatched()))


def _with_images(target: Target, boundary: Boundary) -> Iterator[Boundary]:
    """A boundary and, in revisions whose padding knows lists of images, the same for trajectories with images."""
    yield boundary
    pad = target.find(PAD)
    if "multi_modal" in inspect.getsource(pad) and "TensorDict" not in pad.__globals__:
        others = Output("B", "samples", "columns_of_others", at=Use("ranks")["others"], form=PerRow("list"))
        yield replace(
            boundary,
            outputs={**boundary.outputs, "images": others},
            settings={"images": {"images": True}},
            # Lists of unequal lengths are refused: data.py, all_gather_tensor_container.
            requires=tuple(dict.fromkeys((*boundary.requires, groups_are_equal))),
            reach=f"{boundary.reach}; a workflow whose prompts have images, such as workflow/vision_rlvr.py",
        )


def _items(
    pad: Callable[..., Any], rows: list[dict[str, Tensor]], prompts: list[int], *, images: bool
) -> list[dict[str, Any]]:
    """The trajectories of each prompt, padded to the longest one; ``place`` is a trajectory's row in the batch.

    With ``images``, the image of a trajectory also encodes its row.
    """
    kind = pad.__globals__.get("TensorDict")  # of the first releases
    numbered: Iterator[Any] = (without_padding(row) | {"place": torch.tensor([n])} for n, row in enumerate(rows))
    if images:
        numbered = (row | {IMAGES: [{"pixel_values": row["place"].reshape(1, 1).float()}]} for row in numbered)
    if kind is not None:
        numbered = (kind(row, batch_size=[1]) for row in numbered)
    return [pad([next(numbered) for _ in group]) for _, group in groupby(prompts)]


def redistribute(  # noqa: PLR0913 - functions of the target, the rows, and a setting
    method: Callable[..., Any],
    pad: Callable[..., Any],
    gather: Callable[..., Any],
    rows: list[dict[str, Tensor]],
    prompts: list[int],
    *,
    images: bool,
) -> dict[str, list[Any]]:
    """Redistribute trajectories; return the trajectories that the ranks train on, and how often each one is used.

    Before the redistribution, data-parallel ranks have consecutive prompts. Their group is passed, as
    DistRolloutCoordinator does; where a model is parallel too, other ranks are outside of it.
    """
    items = _items(pad, rows, prompts, images=images)
    share = len(items) // RANKS
    granularity = 1 if images else len(items[0]["place"])  # dist_rollout.py: 1 by default, or the size of a group

    def work(rank: int) -> list[dict[str, Any]]:
        place, group = rank // COPIES, range(rank % COPIES, RANKS * COPIES, COPIES)
        part = items[place * share : (place + 1) * share]
        whole = "granularity" in inspect.signature(method).parameters
        options = {"granularity": granularity} if whole else {}
        data = method(pad(part) if whole else part, group=group, **options).data
        return data if isinstance(data, list) else [data]  # the first releases return a TensorDict

    with replaced_globals(method.__globals__, gather.__globals__, dist=_collectives()):
        received = run_on_ranks(RANKS * COPIES, work)
    return _rows_of([item for part in received[::COPIES] for item in part], rows)


def _collectives() -> SimpleNamespace:
    """A fake ``torch.distributed`` among :func:`run_on_ranks`; a group is the numbers of its ranks."""

    def members(group: Sequence[int] | None) -> Sequence[int]:
        return range(rank_count()) if group is None else group

    def gather_objects(results: list[Any], value: object, group: Sequence[int] | None = None) -> None:
        every = gather_from_ranks(value)
        results[:] = [every[rank] for rank in members(group)]

    def gather(results: list[Tensor], value: Tensor, group: Sequence[int] | None = None) -> None:
        every = gather_from_ranks(value)
        for result, rank in zip(results, members(group), strict=True):
            result.copy_(every[rank])

    return SimpleNamespace(
        get_world_size=lambda group=None: len(members(group)),
        get_rank=lambda group=None: members(group).index(rank_number()),
        all_gather_object=gather_objects,
        all_gather=gather,
    )


def dispatch(
    prepare: Callable[..., Any],
    collect: Callable[..., Any],
    pad: Callable[..., Any],
    rows: list[dict[str, Tensor]],
    *,
    images: bool,
) -> dict[str, list[Any]]:
    """Dispatch trajectories; return those that the workers receive, and how often each trajectory is used.

    Workers return trajectories unchanged. Each row is one item, so that a worker gets several items. If the merge
    reorders the results, all tokens are -1.
    """
    owner = prepare.__globals__[prepare.__qualname__.partition(".")[0]]
    allocation = SimpleNamespace(parallel=SimpleNamespace(dp_size=RANKS))
    controller = bare_instance(owner, train_alloc=allocation, workers_is_dp_head=[True] * RANKS)
    items = _items(pad, rows, list(range(len(rows))), images=images)
    (parts,), _, places = prepare(controller, items)
    merged = collect(controller, list(parts), places)
    columns = _rows_of([item for part in parts for item in part], rows)
    in_order = all(a is b for a, b in zip(merged, items, strict=True))
    if not in_order:
        columns["input_ids"] = [torch.full_like(tokens, -1) for tokens in columns["input_ids"]]
    return columns


def _rows_of(items: list[dict[str, Any]], rows: list[dict[str, Tensor]]) -> dict[str, list[Any]]:
    """The sequences of each row (-1 if lost), its reward (infinite if lost), and how often it is used.

    ``others`` is 1 for a row that is used with the images of another row, or without its images.
    """
    uses, others = [0] * len(rows), [0.0] * len(rows)
    columns: dict[str, list[Any]] = {
        key: [torch.full_like(row[key][0, : int(row["attention_mask"].sum())], -1) for row in rows]
        for key in KEYS.values()
    }
    rewards = [float("inf")] * len(rows)
    for item in items:
        lengths = item["attention_mask"].long().sum(1).tolist()
        for n, place in enumerate(item["place"].tolist()):
            uses[place] += 1
            rewards[place] = float(item["rewards"][n])
            others[place] = max(others[place], float(_image(item.get(IMAGES, []), n) != place))
            for key, column in columns.items():
                aligned = item[key].shape == item["attention_mask"].shape
                if aligned and len(item[key][n][: lengths[n]]) == len(column[place]):
                    column[place] = item[key][n][: lengths[n]]
    return {**columns, "rewards": rewards, "uses": [float(count) for count in uses], "others": others}


def _image(images: Sequence[dict[str, Tensor]], row: int) -> float:
    """The number that the images of a row encode; -1 if it has none, or several."""
    numbers = images[row]["pixel_values"] if row < len(images) and images[row] else torch.zeros(0)
    return float(numbers) if numbers.numel() == 1 else -1.0


def _redistributed(path: str) -> Boundary:
    older = () if path == REDISTRIBUTE[0] else (groups_are_equal,)
    return _boundary(
        path,
        Step(
            call=redistribute,
            name="ranks",
            arguments={
                **functions(method=path, pad=PAD, gather=GATHER),
                "rows": EachRow(Table(rollout().parts)),
                "prompts": PromptIds("list"),
                "images": Knob("images", default=False),
            },
            produced_by={"rows": f"{ROLLOUT}; {_CALLER}"},
        ),
        "dist_rollout.py, docstring: gathers trajectories from all ranks and redistributes them for load balancing",
        "every run of several data-parallel ranks without a controller",
        prompts_are_contiguous,
        _prompts_divide,
        *older,
    )


def _dispatched() -> Boundary:
    return _boundary(
        f"{PREPARE} -> {COLLECT}",
        Step(
            call=dispatch,
            name="ranks",
            arguments={
                **functions(prepare=PREPARE, collect=COLLECT, pad=PAD),
                "rows": EachRow(Table(rollout().parts)),
                "images": Knob("images", default=False),
            },
            produced_by={"rows": f"{ROLLOUT}; train_controller.py, _custom_function_call: a list of trajectories"},
        ),
        "train_controller.py, _partition_inputs and _merge_tensors: trajectories are partitioned across data-parallel "
        "groups, and results put back in the original order",
        "every run with a controller (scheduler.type is set) and several data-parallel ranks",
        even_ranks,
    )


def _boundary(path: str, step: Step, docs: str, reach: str, *conditions: Callable[[Inputs], str]) -> Boundary:
    form, result = RaggedSequence(), Use("ranks")
    outputs = {
        column: Output("B T", "", column, at=result[key], form=Cast(form, torch.bool) if column == "mask" else form)
        for column, key in KEYS.items()
    }
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        unused=frozenset({"prompt_length"}),
        outputs=outputs
        | {
            "reward": Output("B", "reward", "reward", at=result["rewards"], form=PerRow("list")),
            "uses": Output("B", "", "uses", at=result["uses"], form=PerRow("list")),
        },
        claims=claims(docs, conserves=True),
        reach=reach,
        requires=(padded_to_longest, no_empty_response, *conditions),
    )


def even_ranks(inputs: Inputs) -> str:
    """The reason to skip a batch whose rows do not divide evenly among ranks (AReaL rejects it); empty otherwise."""
    rows = inputs.batch.rows
    return f"{rows} rows do not divide evenly among {RANKS} ranks, which AReaL rejects" if rows % RANKS else ""


def _prompts_divide(inputs: Inputs) -> str:
    """The reason to skip a batch whose prompts do not divide evenly among the ranks; empty otherwise.

    A data loader gives each rank the same number of prompts.
    """
    prompts = len(group_sizes(inputs))
    return f"{prompts} prompts do not divide evenly among {RANKS} ranks" if prompts % RANKS else ""
