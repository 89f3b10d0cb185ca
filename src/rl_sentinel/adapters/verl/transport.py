"""verl's transport of a batch: padding for ranks, mini-batches and micro-batches, repetition, concatenation."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import AfterPrompt
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, described
from rl_sentinel.adapters.verl.row_columns import ROW, by_row, in_order, numbered_data, row_outputs
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

PROTOCOL = "verl.protocol"
PAD, UNPAD = f"{PROTOCOL}.pad_dataproto_to_divisor", f"{PROTOCOL}.unpad_dataproto"
PROTO = f"{PROTOCOL}.DataProto"
ITERATE, REPEAT, JOIN = f"{PROTO}.make_iterator", f"{PROTO}.repeat", f"{PROTO}.concat"
BALANCING = "verl.utils.seqlen_balancing"
REARRANGE, REVERSE = f"{BALANCING}.rearrange_micro_batches", f"{BALANCING}.get_reverse_idx"
PREPARE, RESTORE = f"{BALANCING}.prepare_dynamic_batch", f"{BALANCING}.restore_dynamic_batch"

#: Sizes of a world that a batch of a few rows does not fill, and fills several times over.
WORLDS: dict[str, Settings] = {"two ranks": {"ranks": 2}, "sixteen ranks": {"ranks": 16}}

#: Rows of a mini-batch, and epochs over them.
MINI_BATCH, EPOCHS = 2, 2

#: Columns that are followed through micro-batches.
_COLUMNS = (ROW, "old_log_probs", "responses")

_KEEPS = "protocol.py, docstrings of DataProto: a batch of samples; chunk, concat, split and repeat keep each of them"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Padding for ranks, mini-batches, repetition, and micro-batches by tokens, as releases have them."""
    whole: Codec = numbered_data(target)
    makers: tuple[tuple[str, Callable[[], list[Boundary]]], ...] = (
        (PAD, lambda: [_padded(whole)]),
        (ITERATE, lambda: [_mini_batches(whole)]),
        (REPEAT, lambda: [_repeated(whole)]),
        (JOIN, lambda: [_joined(whole)]),
    )
    for path, make in makers:
        yield from described(target, path, "batch", make)
    newer = target.has(PREPARE)
    yield from described(target, PREPARE if newer else REARRANGE, "batch", lambda: [_dynamic(target, newer=newer)])


def through_ranks(pad: Callable[..., Any], unpad: Callable[..., Any], batch: Any, ranks: int, rows: int) -> Any:  # noqa: ANN401
    """A batch padded for so many ranks, handed to each, put together again and unpadded."""
    padded, missing = pad(batch, ranks)
    parts = padded.chunk(chunks=ranks)
    return in_order(unpad(type(batch).concat(parts), missing), rows)


def over_epochs(iterate: Callable[..., Any], batch: Any, rows: int) -> Any:  # noqa: ANN401
    """All mini-batches of all epochs, put together."""
    parts = list(iterate(batch, mini_batch_size=MINI_BATCH, epochs=EPOCHS, seed=1))
    return by_row(type(batch).concat(parts), rows, EPOCHS)


def repeated(repeat: Callable[..., Any], batch: Any, rows: int, interleave: bool) -> Any:  # noqa: ANN401, FBT001
    """A batch with each row so often; the first one of each, where the trainer looks for it."""
    made = repeat(batch, repeat_times=EPOCHS, interleave=interleave)
    places = [row * EPOCHS if interleave else row for row in range(rows)]
    return in_order(made[places], rows) | {"uses": by_row(made, rows, EPOCHS)["uses"]}


def rank_metrics(join: Callable[..., Any], batch: Any, rows: int) -> Any:  # noqa: ANN401
    """A batch of each row's part, as of a rank each, with what the rank measured; put together."""
    parts = batch.chunk(chunks=rows)
    for row, part in enumerate(parts):
        part.meta_info = {"metrics": [{"seconds": 1.0, "rank": row}]}
    made = join(parts)
    measured = made.meta_info.get("metrics", [])
    flat = [one for entry in measured for one in (entry if isinstance(entry, list) else [entry])]
    if isinstance(measured, dict):
        flat = [dict(zip(measured, values, strict=True)) for values in zip(*measured.values(), strict=True)]
    return in_order(made, rows) | {"measured": float(len(flat))}


def by_tokens(cut: Callable[..., Any], back: Callable[..., Any], batch: Any, rows: int, most: int) -> Any:  # noqa: ANN401
    """Micro-batches of at most so many tokens, whose columns are put together and in order again."""
    parts, places = cut(batch, max_token_len=most)
    columns = {name: back(torch.cat([part.batch[name] for part in parts]), places) for name in _COLUMNS}
    uids = np.concatenate([part.non_tensor_batch["uid"] for part in parts])
    order = np.argsort([row for part in places for row in part])
    return in_order(SimpleNamespace(batch=columns, non_tensor_batch={"uid": uids[order]}), rows)


def by_tokens_of_tensors(cut: Callable[..., Any], back: Callable[..., Any], batch: Any, rows: int, most: int) -> Any:  # noqa: ANN401
    """The same of releases that cut the tensors alone, as their workers do it."""
    parts, places = cut(batch=batch.batch, max_token_len=most)
    order = torch.tensor(back([row for part in places for row in part]), dtype=torch.long)
    columns = {name: torch.cat([part[name] for part in parts])[order] for name in _COLUMNS}
    return in_order(SimpleNamespace(batch=columns, non_tensor_batch=batch.non_tensor_batch), rows)


def divides(inputs: Inputs) -> str:
    """The rows fill whole mini-batches."""
    rows = inputs.batch.rows
    return f"{rows} rows do not fill mini-batches of {MINI_BATCH}" if rows % MINI_BATCH else ""


def _rows(inputs: Inputs) -> int:
    return inputs.batch.rows


def _most_tokens(inputs: Inputs) -> int:
    """What holds two of the longest rows, each with a prompt of one token."""
    return 2 * (inputs.batch.width + 1)


def _carried(call: Callable[..., Any], functions: tuple[str, ...], whole: Codec, **more: Codec) -> Step:
    names = list(inspect.signature(call).parameters)
    own: dict[str, Codec] = {name: Constant(Function(path)) for name, path in zip(names, functions, strict=False)}
    arguments = {**own, "batch": whole, "rows": Derived(_rows), **more}
    return Step(call=call, name="carried", arguments=arguments, produced_by={"batch": MASK_PRODUCER})


def _boundary(path: str, step: Step, reach: str = "every run", **about: Any) -> Boundary:  # noqa: ANN401 - fields of a boundary
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


def _padded(whole: Codec) -> Boundary:
    step = _carried(through_ranks, (PAD, UNPAD), whole, ranks=Knob("ranks"))
    return _boundary(f"{PAD} -> {UNPAD}", step, "every validation; generation of an agent loop", settings=WORLDS)


def _mini_batches(whole: Codec) -> Boundary:
    return _boundary(ITERATE, _carried(over_epochs, (ITERATE,), whole), requires=(no_empty_response, divides))


def _repeated(whole: Codec) -> Boundary:
    step = _carried(repeated, (REPEAT,), whole, interleave=Knob("interleave"))
    orders: dict[str, Settings] = {"interleaved": {"interleave": True}, "stacked": {"interleave": False}}
    return _boundary(REPEAT, step, "rollout.n above 1", settings=orders)


def _joined(whole: Codec) -> Boundary:
    measured = Output("", "", "rows", at=Use("carried")["measured"])
    outputs = {**row_outputs(Use("carried")), "measured": measured}
    return _boundary(JOIN, _carried(rank_metrics, (JOIN,), whole), "more than one rank", outputs=outputs)


def _dynamic(target: Target, *, newer: bool) -> Boundary:
    call, paths = (by_tokens, (PREPARE, RESTORE)) if newer else (by_tokens_of_tensors, (REARRANGE, REVERSE))
    tokens = numbered_data(target, input_ids=Column("token", AfterPrompt(1)))
    step = _carried(call, paths, tokens, most=Derived(_most_tokens))
    return _boundary(" -> ".join(paths), step, "use_dynamic_bsz=True")
