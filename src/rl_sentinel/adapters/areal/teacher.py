"""AReaL's teacher on an inference server: its log-probs of the tokens that a rollout trains."""

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.arguments import ROLLOUT, padded_to_longest, rollout
from rl_sentinel.adapters.areal.conversations import has_prompt
from rl_sentinel.adapters.areal.engine_clients import BACKENDS, GENERATE
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_fields
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

SCORE = f"{GENERATE.rpartition('.')[0]}.compute_logp"

_PLACES = (
    "trainer/ppo/actor.py, grpo_loss_fn: position t of teacher_logp, as of logprobs and loss_mask, is about token "
    "t + 1; engine/fsdp_engine.py, forward_batch, returns them so for a teacher with engine_type 'train'"
)
_CALLER = "trainer/rl_trainer.py, train: teacher.compute_logp of the rollout, as teacher_logp of each trajectory"

#: Log-prob of a prompt token, which no trained token has.
_PROMPT = -99.0


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the teacher's log-probs of a rollout, one per inference server that can score tokens."""
    if not target.has(SCORE) or target.fails(SCORE):
        return
    for name, backend in BACKENDS[GENERATE].items():
        if target.has(f"{backend}.build_score_request") and not target.fails(backend):
            yield from bindable(target, _scored(name, backend))


def score(method: Callable[..., Any], backend: Callable[..., Any], rows: list[dict[str, Any]]) -> list[Tensor]:
    """Score a rollout; return the teacher's log-probs at trained tokens, and the batch's values at other tokens."""
    trained = iter([row for row in rows if any(row["mask"])])
    module = SimpleNamespace(request=lambda _method, _url, json, **_options: _Reply(_answer(json, next(trained))))
    engine = SimpleNamespace(
        config=SimpleNamespace(request_timeout=1.0, use_lora=False),
        backend=backend(),
        choose_server=lambda: "server",
        get_version=lambda: 0,
    )
    with replaced_globals(method.__globals__, requests=module):
        scored = method(engine, [row["data"] for row in rows])
    return [_read(row, logprobs[0]) for row, logprobs in zip(rows, scored, strict=True)]


def _read(row: Mapping[str, Any], logprobs: Tensor) -> Tensor:
    first = len(row["prompt"]) - 1  # the position that predicts the first token of the response
    scored = logprobs[first : first + len(row["teacher"])].tolist()
    return torch.tensor([scored[n] if trained else row["teacher"][n] for n, trained in enumerate(row["mask"])])


class _Reply:
    """A fake reply over HTTP."""

    def __init__(self, body: dict[str, Any]) -> None:
        """Store the body."""
        self.body = body

    def raise_for_status(self) -> None:
        """Do nothing: the request succeeded."""

    def json(self) -> dict[str, Any]:
        """The body."""
        return self.body


def _answer(payload: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """The model's log-prob of each token of the request, in the format of the payload (SGLang or vLLM)."""
    is_sglang = "sampling_params" in payload
    ids = list(payload["input_ids"] if is_sglang else payload["prompt"])
    known = [*[_PROMPT] * len(row["prompt"]), *row["teacher"]]
    logprobs = [*known, *[_PROMPT] * len(ids)][: len(ids)]
    if is_sglang:
        start = int(payload.get("logprob_start_len", 0))
        pairs = [[logprob, token, None] for logprob, token in zip(logprobs, ids, strict=True)]
        return {"meta_info": {"input_token_logprobs": pairs[start:]}}
    after = [{str(token): {"logprob": logprob}} for logprob, token in zip(logprobs[1:], ids[1:], strict=True)]
    return {"choices": [{"prompt_logprobs": [None, *after]}]}


def _scored(name: str, backend: str) -> Boundary:
    row = Table({"data": Table(rollout().parts), **row_fields("prompt", "mask"), "teacher": RowTokens("ref_logprob")})
    return one_call(
        path=f"{SCORE} -> {backend}.parse_score_response",
        stage="batch",
        call=score,
        name="scored",
        arguments={**functions(method=SCORE, backend=backend), "rows": EachRow(row)},
        produced_by={"rows": f"{ROLLOUT}; {_CALLER}"},
        unused=frozenset({"token", "version", "reward", "old_logprob"}),
        outputs={"ref_logprob": Output("B T", "nats", "ref_logprob", at=Use("scored"), form=Ragged())},
        settings={name: {}},
        claims=claims(_PLACES, conserves=True),
        reach=f"teacher.engine_type='rollout', teacher.rollout.backend={name.lower()}",
        requires=(padded_to_longest, no_empty_response, has_prompt),
    )
