"""SkyRL's Tinker engine: the gradients that each optimizer step applies, if a client sends requests in advance."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.skyrl.tinker_queue_fakes import REQUESTS, Query, Session, least
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

OWNER = "skyrl.tinker.engine.TinkerEngine"
PATH = f"{OWNER}.process_pending_requests"

#: The requests of a step, in the order in which a client sends them.
STEP = ("FORWARD_BACKWARD", "OPTIM_STEP", "SAVE_WEIGHTS_FOR_SAMPLER")

_MODEL = "policy"
_CLAIMS = claims(
    "tinker/engine.py, find_batchable_model_passes: only requests before any optim_step or load_weights of their model "
    "are batched; tinker's TrainingClient: requests of a model take effect in the order in which they are sent",
    conserves=True,
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundary of the engine's loop, in releases that have the engine."""
    yield from try_bind(target, PATH, "batch", lambda: [_boundary()])


class Idle(Exception):  # noqa: N818 - not an error
    """The engine has processed all requests that it can process."""


def applied_gradients(loop: Callable[..., Any], owner: type, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Send one step per row, all before the engine reads the first one.

    Returns, for each row, the log-probs of the rows whose gradients the row's optimizer step applies; infinity if their
    number differs from the row's.
    """
    names: dict[str, Any] = loop.__globals__
    kinds, status = names["types"].RequestType, names["RequestStatus"]
    sent = [(number, getattr(kinds, kind)) for number in range(len(rows)) for kind in STEP]
    pending = [
        SimpleNamespace(request_id=n, request_type=kind, model_id=_MODEL, request_data=number, status=status.PENDING)
        for n, (number, kind) in enumerate(sent, 1)
    ]
    gradient, applied = list[int](), list[list[int]]()
    answered: list[str] = []

    def accumulate(requests: dict[str, tuple[str, int]]) -> dict[str, Any]:
        gradient.extend(number for _, number in requests.values())
        return dict.fromkeys(requests)

    def process(kind: object, *_request: object) -> None:
        if kind is kinds.OPTIM_STEP:
            applied.append(gradient.copy())
            gradient.clear()

    def complete(results: dict[str, Any]) -> None:
        answered.extend(results)
        for request in pending:
            if str(request.request_id) in results:
                request.status = status.COMPLETED

    def wait(_seconds: float) -> None:
        if not answered:
            raise Idle
        answered.clear()

    engine = bare_instance(
        owner,
        db_engine=pending,
        config=SimpleNamespace(backend="", session_cleanup_interval_sec=-1, session_timeout_sec=-1),
        backend=SimpleNamespace(has_model=lambda _name: True),
        process_forward_backward=accumulate,
        process_single_request=process,
        _complete_futures=complete,
    )
    payload = SimpleNamespace(model_validate=lambda data: data)
    fakes = {
        "Session": Session,
        "select": Query,
        "func": SimpleNamespace(min=least),
        "FutureDB": REQUESTS,
        "types": SimpleNamespace(**{**vars(names["types"]), "ForwardBackwardInput": payload}),
        "time": SimpleNamespace(sleep=wait, time=float),
    }
    with replaced_globals(names, **fakes), suppress(Idle):
        loop(engine)
    found = [[value for number in step for value in rows[number]["logprobs"]] for step in applied]
    found += [[]] * (len(rows) - len(found))
    sizes = [len(row["logprobs"]) for row in rows]
    return {
        "logprobs": [one if len(one) == size else [float("inf")] * size for one, size in zip(found, sizes, strict=True)]
    }


def _boundary() -> Boundary:
    return one_call(
        path=PATH,
        stage="batch",
        call=applied_gradients,
        name="applied",
        arguments={
            **functions(loop=PATH, owner=OWNER),
            "rows": EachRow(Table(row_fields("logprobs"))),
        },
        produced_by={
            "rows": "tinker/api.py, forward_backward, optim_step, save_weights_for_sampler: a future for each"
        },
        outputs=row_outputs(Use("applied"), "rollout_logprob"),
        settings={"steps in advance": {}},
        claims=_CLAIMS,
        reach="a client of the Tinker server that sends a step before the result of the last one",
        requires=(no_empty_response,),
    )
