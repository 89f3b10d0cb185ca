"""slime's teacher server: a queue passes client requests to workers in batches, and log-probs back to each client."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import Cast, Ragged
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_fields
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

MANAGER = "slime.backends.megatron_utils.server.megatron_server.SampleManager"

#: The first token of the request of row 0; that of row n is ``_FIRST + n``.
_FIRST = 1000

#: Workers that take requests in turn.
_WORKERS = 2

_DOCS = claims(
    "megatron_server.py, SampleManager: tokens, response length and mask of a request reach a worker, its log-probs "
    "the client that sent it",
    conserves=True,
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the queue, in revisions with a teacher server."""
    if target.has(MANAGER) and not target.fails(MANAGER):
        yield from bindable(target, _boundary())


def serve(manager: Callable[..., Any], rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Send one request per row.

    Returns, per request, ``logprobs``: those that its client gets; ``tokens`` and ``masks``: those that a worker gets.
    Each worker gets one request at a time, and the workers reply in another order.
    """
    put = SimpleNamespace(put=lambda data: data)
    with replaced_globals(manager.submit.__globals__, ray=put):  # type: ignore[attr-defined]
        queue = manager(None, None)
        queue.set_train_parallel_config({})
        names = [
            queue.submit(
                input_ids=[_FIRST + number, *row["prompt"], *row["tokens"]],
                response_length=len(row["tokens"]),
                loss_mask=row["mask"],
            )
            for number, row in enumerate(rows)
        ]
        taken: dict[int, dict[str, Any]] = {}
        for start in range(0, len(rows), _WORKERS):
            workers = range(min(_WORKERS, len(rows) - start))
            for worker, (box,) in reversed([(worker, queue.get_input_data(worker)) for worker in workers]):
                number = box.inner["tokens"][0][0] - _FIRST
                taken[number] = box.inner
                queue.save_log_probs(worker, [{"log_probs": rows[number]["logprobs"]}])
        results = [queue.get_result(name)["log_probs"] for name in names]
    batches = [taken[number] for number in range(len(rows))]
    return {
        "logprobs": results,
        "tokens": [batch["tokens"][0][-batch["response_lengths"][0] :] for batch in batches],
        "masks": [batch["loss_masks"][0] for batch in batches],
    }


def _boundary() -> Boundary:
    row = Table({**row_fields("prompt", "tokens", "mask"), "logprobs": RowTokens("logprob")})
    served, form = Use("served"), Ragged()
    return one_call(
        path=f"{MANAGER}.submit",
        stage="batch",
        call=serve,
        name="served",
        arguments={"manager": Constant(Function(MANAGER)), "rows": EachRow(row)},
        produced_by={"rows": "megatron_server.py, the handlers of HTTP requests: token ids, response length and mask"},
        outputs={
            "logprob": Output("B T", "nats", "logprob", at=served["logprobs"], form=form),
            "token": Output("B T", "", "token", at=served["tokens"], form=form),
            "mask": Output("B T", "", "mask", at=served["masks"], form=Cast(form, torch.bool)),
        },
        claims=_DOCS,
        reach="a teacher or a reference that runs as a server",
        requires=(no_empty_response,),
    )
