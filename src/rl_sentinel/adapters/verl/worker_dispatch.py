"""Boundaries of calls of a verl worker group: a batch is split over the ranks, and their results are joined."""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, functions, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.row_columns import columns_in_order, numbered_data
from rl_sentinel.adapters.verl.transport import transport_boundary, transport_step
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec, Inputs

_FOLDER = "verl.single_controller"
GENERATE = f"{_FOLDER}.ray.base.func_generator"
GROUP = f"{_FOLDER}.base.worker_group.WorkerGroup"
_DECORATOR = f"{_FOLDER}.base.decorator"
ALL = (f"{_DECORATOR}.dispatch_dp_compute_data_proto", f"{_DECORATOR}.collect_dp_compute_data_proto")
MESH = (f"{_DECORATOR}.dispatch_lazy_compute_data_proto", f"{_DECORATOR}.collect_lazy_compute_data_proto")
_PUT = "verl.utils.ray_utils.parallel_put"
_PADS = f"{_FOLDER}.base.decorator._split_args_kwargs_data_proto_with_auto_padding"

#: The name of the device mesh, and the ranks that share a part of the rows, as tensor-parallel ranks do.
_NAME, _COPIES = "actor", 2

#: Settings of a call: whether rows are added until they divide, and whether the batch is passed by name.
_EQUAL: Mapping[str, Settings] = {"equal parts": {"padded": False, "by_name": False}}
_PADDED: Mapping[str, Settings] = {
    "padded": {"padded": True, "by_name": False},
    "padded, by name": {"padded": True, "by_name": True},
}

#: A fake ``ray`` in one process: a reference to an object is the object.
RAY = SimpleNamespace(get=lambda found: found, put=lambda value: value, ObjectRef=type("ObjectRef", (), {}))

#: Number of parts of the rows.
RANKS = 2


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of calls of all workers, each with its own rows, and of a mesh in which workers share rows."""
    if not target.has(GENERATE) or not target.has(GROUP) or target.fails(GENERATE):
        return
    for paths, copies in ((ALL, 1), (MESH, _COPIES)):
        if all(map(target.has, paths)) and (copies == 1 or target.has(_PUT)):
            yield from try_bind(target, paths[0], "batch", partial(_calls, target, paths, copies))


def call_workers(  # noqa: PLR0913 - functions and classes of the target, and settings
    dispatch: Callable[..., Any],
    collect: Callable[..., Any],
    generate: Callable[..., Any],
    group: type,
    batch: Any,  # noqa: ANN401 - a DataProto
    rows: int,
    copies: int,
    padded: bool,  # noqa: FBT001 - a setting, as the next
    by_name: bool,  # noqa: FBT001
) -> dict[str, Any]:
    """Call a worker method that returns its rows; return the columns of the joined result, which must be the batch.

    ``copies`` ranks get equal rows; if it is above 1, they are ranks of a device mesh.
    """
    ranks = RANKS * copies
    mesh = {_NAME: [rank // copies for rank in range(ranks)]}
    collects = {_NAME: [rank % copies == 0 for rank in range(ranks)]}
    workers = bare_instance(group, _workers=[None] * ranks, _dispatch_info=mesh, _collect_info=collects)
    split, join = (partial(one, _NAME) if copies > 1 else one for one in (dispatch, collect))
    protocol = sys.modules[type(batch).__module__]
    if padded:
        batch.meta_info[protocol.DataProtoConfig.auto_padding_key] = True

    def execute(_method: str, *passed: list[Any], **named: list[Any]) -> list[Any]:
        return [(passed or (named["data"],))[0][rank] for rank in range(ranks)]

    with patch.dict(sys.modules, ray=RAY), replaced_globals(generate.__globals__, vars(protocol), ray=RAY):
        call = generate(workers, "method", split, join, execute, blocking=True)
        joined = call(data=batch) if by_name else call(batch)
    return columns_in_order(joined, rows)


def _divides(inputs: Inputs) -> str:
    """The reason to skip a batch whose rows do not divide over the ranks, if no rows are added; empty otherwise."""
    rows = inputs.batch.rows
    unequal = not inputs.settings["padded"] and rows % RANKS
    return f"{rows} rows do not divide evenly among {RANKS} ranks" if unequal else ""


def _calls(target: Target, paths: tuple[str, str], copies: int) -> Iterator[Boundary]:
    own: dict[str, Codec] = {
        **functions(generate=GENERATE, group=GROUP),
        "copies": Constant(copies),
        **knobs("padded", "by_name"),
    }
    step = transport_step(
        call_workers, paths, numbered_data(target), fakes={_PUT: unmoved} if copies > 1 else {}, **own
    )
    pads = copies == 1 and target.has(_PADS)
    yield transport_boundary(
        " -> ".join(paths),
        step,
        "every call of a worker group; padded: DataProto.from_dict(auto_padding=True), or VERL_AUTO_PADDING=1; "
        "by name: a batch passed by keyword, as your own code may do",
        settings={**_EQUAL, **(_PADDED if pads else {})},
        requires=(no_empty_response, _divides),
    )


def unmoved(values: Any, **_about: object) -> list[Any]:  # noqa: ANN401 - parts of a batch
    """The same objects in a list, in place of references to them."""
    return list(values)
