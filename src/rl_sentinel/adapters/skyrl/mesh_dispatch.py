"""Boundary of SkyRL's calls of workers on a mesh: each data-parallel rank gets its rows, and the results are joined."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.skyrl.arguments import INPUT, PRODUCED_BY, Arguments, arguments, with_metadata
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs
from rl_sentinel.core.errors import Unbindable

MODULE = "skyrl.backends.skyrl_train.distributed.dispatch"
MESH, JOIN = f"{MODULE}.MeshDispatch", f"{MODULE}.concatenate_outputs_after_mesh_dispatch"
RANK, INFO = f"{MODULE}.MeshRank", f"{MODULE}.ActorInfo"
OUTPUT = "skyrl.backends.skyrl_train.training_batch.TrainingOutputBatch"

#: Sizes of the mesh.
DATA, TENSOR, PIPELINE = 2, 2, 2

_KEY = "action_log_probs"

_DOCS = (
    "dispatch.py, MeshDispatch and concatenate_outputs_after_mesh_dispatch, docstrings: equal chunks by data-parallel "
    "rank; collected from one rank of each and concatenated in order, to reconstruct the full data"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of a forward pass on a mesh of data-, tensor- and pipeline-parallel ranks."""
    if not all(map(target.has, (MESH, JOIN, RANK, INFO, INPUT, OUTPUT))) or target.fails(MESH):
        return
    try:
        layout = arguments(target)
    except Unbindable:
        return  # the adapter's other modules report it
    yield from bindable(target, _pass(layout))


class Store:
    """A fake ``ray`` whose references are objects that were pickled once, as in Ray's object store."""

    @staticmethod
    def put(value: Any) -> Any:  # noqa: ANN401 - any object
        """A pickled copy of an object."""
        return pickle.loads(pickle.dumps(value))  # noqa: S301 - made here


def pass_on_mesh(  # noqa: PLR0913 - classes and functions of the target
    mesh: Any,  # noqa: ANN401 - a class of the target
    join: Callable[..., Any],
    rank: Callable[..., Any],
    info: Callable[..., Any],
    output: Callable[..., Any],
    data: Any,  # noqa: ANN401 - a training batch
) -> Any:  # noqa: ANN401 - a tensor
    """Run a forward pass that returns a column of the batch; return the column of the joined outputs.

    Only the first tensor-parallel rank of the last pipeline stage computes it; the others return -1.
    """
    known = {field.name for field in fields(rank)}  # type: ignore[arg-type] # a dataclass of the target
    stages = PIPELINE if "pp_size" in known else 1  # before September 2025, no backend had pipeline stages
    sizes = {"world_size": DATA * TENSOR * stages, "dp_size": DATA, "pp_size": stages, "sp": 0}

    def compute(computes: bool, part: Any, **_options: object) -> Any:  # noqa: ANN401, FBT001 - a training batch
        column = part[_KEY]
        return with_metadata(output({"output": column if computes else 0 * column - 1}), {})

    actors = []
    for dp, pp, tp in product(range(DATA), range(stages), range(TENSOR)):
        about = {**sizes, "dp": dp, "pp": pp, "tp": tp}
        place = rank(**{name: value for name, value in about.items() if name in known})
        run = partial(compute, tp == 0 and pp == stages - 1)
        actors.append(info(SimpleNamespace(forward=SimpleNamespace(remote=run)), place))
    with replaced_globals(mesh.dispatch.__globals__, ray=Store):
        passed, named = mesh.validate_dispatch_args(data)
        results = mesh.dispatch(actors, "forward", *passed, **named)
    return join(actors, results)["output"]


def _divides(inputs: Inputs) -> str:
    """The reason to skip a batch whose rows do not divide over the data-parallel ranks; empty otherwise."""
    rows = inputs.batch.rows
    return f"{rows} rows do not divide evenly among {DATA} ranks" if rows % DATA else ""


def _pass(layout: Arguments) -> Boundary:
    paths = {"mesh": MESH, "join": JOIN, "rank": RANK, "info": INFO, "output": OUTPUT}
    tensors = {_KEY: layout.column("old_logprob"), "response_mask": layout.response_mask}
    return one_call(
        path=f"{MESH}.dispatch -> {JOIN}",
        stage="batch",
        call=pass_on_mesh,
        name="column",
        arguments={**functions(**paths), "data": layout.batch(tensors, {})},
        produced_by={"data": PRODUCED_BY},
        outputs={"old_logprob": Output("B T", "nats", "old_logprob", at=Use("column"), form=layout.form)},
        claims=claims(_DOCS, conserves=True),
        reach="every forward pass on several ranks",
        requires=(no_empty_response, _divides),
    )
