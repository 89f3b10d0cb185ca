"""Boundaries of verl's ``DataProto``: padding for ranks, mini- and micro-batches, copies, other orders, pickling."""

import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import AfterPrompt
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Derived, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER
from rl_sentinel.adapters.verl.row_columns import ROW, columns_by_row, columns_in_order, numbered_data, row_outputs
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

PROTOCOL = "verl.protocol"
PAD, UNPAD = f"{PROTOCOL}.pad_dataproto_to_divisor", f"{PROTOCOL}.unpad_dataproto"
PROTO = f"{PROTOCOL}.DataProto"
ITERATE, REPEAT, JOIN = f"{PROTO}.make_iterator", f"{PROTO}.repeat", f"{PROTO}.concat"
REORDER, SELECT, STATE = f"{PROTO}.reorder", f"{PROTO}.select_idxs", f"{PROTO}.__getstate__"
BALANCING = "verl.utils.seqlen_balancing"
REARRANGE, REVERSE = f"{BALANCING}.rearrange_micro_batches", f"{BALANCING}.get_reverse_idx"
PREPARE, RESTORE = f"{BALANCING}.prepare_dynamic_batch", f"{BALANCING}.restore_dynamic_batch"

#: Numbers of ranks: less than the rows of most batches, and more than them.
WORLDS: dict[str, Settings] = {"two ranks": {"ranks": 2}, "sixteen ranks": {"ranks": 16}}

#: Rows of a mini-batch, and number of epochs.
MINI_BATCH, EPOCHS = 2, 2

#: Columns that are followed through micro-batches.
_COLUMNS = (ROW, "old_log_probs", "responses")

_KEEPS = "protocol.py, docstrings of DataProto: a batch of samples; chunk, concat, split and repeat keep each of them"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of padding for ranks, mini- and micro-batches, ``repeat``, ``concat``, other orders and pickling."""
    whole: Codec = numbered_data(target)
    makers: tuple[tuple[str, Callable[[], list[Boundary]]], ...] = (
        (PAD, lambda: [_padding(whole)]),
        (ITERATE, lambda: [_mini_batches(whole)]),
        (REPEAT, lambda: [_repeated(whole)]),
        (JOIN, lambda: [_concatenated(whole)]),
        (REORDER, lambda: [_whole(REORDER, reorder_rows, whole, "trainer.balance_batch=True (the default)")]),
        (SELECT, lambda: [_whole(SELECT, select_rows, whole, "a batch whose rows are filtered")]),
    )
    if target.has(PROTO) and not target.fails(PROTO) and "__getstate__" in vars(target.find(PROTO)):  # object has one
        makers += ((STATE, lambda: [_whole(STATE, pickled, whole, "every call of a worker")]),)
    for path, make in makers:
        yield from try_bind(target, path, "batch", make)
    newer = target.has(PREPARE)
    yield from try_bind(target, PREPARE if newer else REARRANGE, "batch", lambda: [_dynamic(target, newer=newer)])


def pad_and_chunk(pad: Callable[..., Any], unpad: Callable[..., Any], batch: Any, ranks: int, rows: int) -> Any:  # noqa: ANN401
    """Pad a batch for the ranks, split it, concatenate the parts and unpad the result."""
    padded, missing = pad(batch, ranks)
    parts = padded.chunk(chunks=ranks)
    return columns_in_order(unpad(type(batch).concat(parts), missing), rows)


def iterate_epochs(iterate: Callable[..., Any], batch: Any, rows: int) -> Any:  # noqa: ANN401
    """Split a batch into the mini-batches of all epochs; return the columns of each row, and its uses per epoch."""
    parts = list(iterate(batch, mini_batch_size=MINI_BATCH, epochs=EPOCHS, seed=1))
    return columns_by_row(type(batch).concat(parts), rows, EPOCHS)


def repeat_rows(repeat: Callable[..., Any], batch: Any, rows: int, interleave: bool) -> Any:  # noqa: ANN401, FBT001
    """Repeat each row; return the first copy of each row, at the place where the trainer expects it."""
    copies = repeat(batch, repeat_times=EPOCHS, interleave=interleave)
    places = [row * EPOCHS if interleave else row for row in range(rows)]
    return columns_in_order(copies[places], rows) | {"uses": columns_by_row(copies, rows, EPOCHS)["uses"]}


def rank_metrics(join: Callable[..., Any], batch: Any, rows: int) -> Any:  # noqa: ANN401
    """Split a batch into one part per row, each with the metrics of a rank, and concatenate the parts."""
    parts = batch.chunk(chunks=rows)
    for row, part in enumerate(parts):
        part.meta_info = {"metrics": [{"seconds": 1.0, "rank": row}]}
    joined = join(parts)
    measured = joined.meta_info.get("metrics", [])
    flat = [one for entry in measured for one in (entry if isinstance(entry, list) else [entry])]
    if isinstance(measured, dict):
        flat = [dict(zip(measured, values, strict=True)) for values in zip(*measured.values(), strict=True)]
    return columns_in_order(joined, rows) | {"measured": float(len(flat))}


def reorder_rows(reorder: Callable[..., Any], batch: Any, rows: int) -> Any:  # noqa: ANN401
    """Reverse the rows in place; return the columns in the order before."""
    reorder(batch, torch.arange(rows).flip(0))
    return _reversed_columns(batch, rows)


def select_rows(select: Callable[..., Any], batch: Any, rows: int) -> Any:  # noqa: ANN401
    """Select all rows in the reverse order; return the columns in the order before."""
    return _reversed_columns(select(batch, list(range(rows))[::-1]), rows)


def _reversed_columns(batch: Any, rows: int) -> Any:  # noqa: ANN401
    columns = {name: batch.batch[name].flip(0) for name in _COLUMNS}
    labels = {"uid": batch.non_tensor_batch["uid"][::-1]}
    return columns_in_order(SimpleNamespace(batch=columns, non_tensor_batch=labels), rows)


def pickled(_state: Callable[..., Any], batch: Any, rows: int) -> Any:  # noqa: ANN401
    """Pickle a batch as Ray does, and load it; return the columns of the loaded batch."""
    return columns_in_order(pickle.loads(pickle.dumps(batch)), rows)  # noqa: S301 - made here


def split_by_tokens(cut: Callable[..., Any], back: Callable[..., Any], batch: Any, rows: int, most: int) -> Any:  # noqa: ANN401
    """Split a batch into micro-batches of at most ``most`` tokens, then concatenate them and restore the order."""
    parts, places = cut(batch, max_token_len=most)
    columns = {name: back(torch.cat([part.batch[name] for part in parts]), places) for name in _COLUMNS}
    uids = np.concatenate([part.non_tensor_batch["uid"] for part in parts])
    order = np.argsort([row for part in places for row in part])
    return columns_in_order(SimpleNamespace(batch=columns, non_tensor_batch={"uid": uids[order]}), rows)


def split_tensors_by_tokens(cut: Callable[..., Any], back: Callable[..., Any], batch: Any, rows: int, most: int) -> Any:  # noqa: ANN401
    """Like :func:`split_by_tokens`, for releases whose workers split only the tensors."""
    parts, places = cut(batch=batch.batch, max_token_len=most)
    order = torch.tensor(back([row for part in places for row in part]), dtype=torch.long)
    columns = {name: torch.cat([part[name] for part in parts])[order] for name in _COLUMNS}
    return columns_in_order(SimpleNamespace(batch=columns, non_tensor_batch=batch.non_tensor_batch), rows)


def divides(inputs: Inputs) -> str:
    """The reason to skip a batch whose rows do not fill whole mini-batches; empty otherwise."""
    rows = inputs.batch.rows
    return f"{rows} rows do not fill mini-batches of {MINI_BATCH}" if rows % MINI_BATCH else ""


def _rows(inputs: Inputs) -> int:
    return inputs.batch.rows


def _most_tokens(inputs: Inputs) -> int:
    """The maximum tokens of a micro-batch: two of the longest rows, each with a one-token prompt."""
    return 2 * (inputs.batch.width + 1)


def transport_step(
    call: Callable[..., Any],
    paths: tuple[str, ...],
    whole: Codec,
    *,
    fakes: Mapping[str, Callable[..., Any]] | None = None,
    **more: Codec,
) -> Step:
    """A step of a function whose first parameters are these functions of the target; it gets a whole batch."""
    names = list(inspect.signature(call).parameters)
    arguments = {**functions(**dict(zip(names, paths, strict=False))), "batch": whole, "rows": Derived(_rows), **more}
    return Step(call=call, name="carried", arguments=arguments, fakes=fakes or {}, produced_by={"batch": MASK_PRODUCER})


def transport_boundary(path: str, step: Step, reach: str = "every run", **about: Any) -> Boundary:  # noqa: ANN401
    """The boundary of an operation that keeps all rows; ``about`` has further fields of the boundary."""
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        reads=frozenset({"old_logprob", "group", "token", "length"}),
        **{
            "outputs": row_outputs(Use("carried")),
            "claims": claims(_KEEPS, conserves=True),
            "reach": reach,
            "requires": (no_empty_response,),
            **about,
        },
    )


def _padding(whole: Codec) -> Boundary:
    step = transport_step(pad_and_chunk, (PAD, UNPAD), whole, ranks=Knob("ranks"))
    return transport_boundary(
        f"{PAD} -> {UNPAD}", step, "every validation, and generation in an agent loop", settings=WORLDS
    )


def _mini_batches(whole: Codec) -> Boundary:
    return transport_boundary(
        ITERATE, transport_step(iterate_epochs, (ITERATE,), whole), requires=(no_empty_response, divides)
    )


def _repeated(whole: Codec) -> Boundary:
    step = transport_step(repeat_rows, (REPEAT,), whole, interleave=Knob("interleave"))
    orders: dict[str, Settings] = {"interleaved": {"interleave": True}, "stacked": {"interleave": False}}
    return transport_boundary(REPEAT, step, "rollout.n above 1", settings=orders)


def _whole(path: str, call: Callable[..., Any], whole: Codec, reach: str) -> Boundary:
    return transport_boundary(path, transport_step(call, (path,), whole), reach)


def _concatenated(whole: Codec) -> Boundary:
    measured = Output("", "", "rows", at=Use("carried")["measured"])
    outputs = {**row_outputs(Use("carried")), "measured": measured}
    return transport_boundary(JOIN, transport_step(rank_metrics, (JOIN,), whole), "more than one rank", outputs=outputs)


def _dynamic(target: Target, *, newer: bool) -> Boundary:
    call, paths = (split_by_tokens, (PREPARE, RESTORE)) if newer else (split_tensors_by_tokens, (REARRANGE, REVERSE))
    tokens = numbered_data(target, input_ids=Column("token", AfterPrompt(1)))
    step = transport_step(call, paths, tokens, most=Derived(_most_tokens))
    return transport_boundary(" -> ".join(paths), step, "use_dynamic_bsz=True")
