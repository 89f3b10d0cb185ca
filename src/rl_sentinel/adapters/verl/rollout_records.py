"""The records that verl's trainer writes of a rollout: prompt, response, score and request of each row."""

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, fit_to_length
from rl_sentinel.adapters.kit.value_codecs import Constant, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

OWNER = "verl.trainer.ppo.ray_trainer.RayPPOTrainer"
PATH, PROTO = f"{OWNER}._log_rollout_data", "verl.protocol.DataProto"

#: The modules that have given requests to rows, and source text of one that does.
WRITERS = ("verl.workers.rollout.sglang_rollout.sglang_rollout", "verl.experimental.agent_loop.agent_loop")
WRITES = '"request_id": np.array'

#: The token after the end of a prompt or a response, which is not written.
_PAD = -1

_PRODUCED = (
    "ray_trainer.py, fit: the scored batch of a step, with the request_id that the agent loop or the rollout gave to "
    "each row, and the reward manager's reward_extra_infos_dict"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the records, in releases that write them in a method."""
    if target.has(PATH) and not target.fails(OWNER):
        writers = [module for module in WRITERS if target.has(module) and not target.fails(module)]
        numbered = any(WRITES in inspect.getsource(target.find(module)) for module in writers)
        yield from try_bind(target, PATH, "batch", lambda: [_records(numbered=numbered)])


class Words:
    """A fake tokenizer, whose words are token ids."""

    def batch_decode(self, rows: Tensor, **_options: object) -> list[str]:
        """The ids of each row as words, without padding."""
        return [" ".join(str(token) for token in row if token != _PAD) for row in rows.tolist()]


def at_once(function: Callable[..., object], *passed: object, **named: object) -> Future[object]:
    """Call the function, in place of an executor that does so in a thread."""
    done: Future[object] = Future()
    done.set_result(function(*passed, **named))
    return done


def written(
    owner: type,
    proto: Any,  # noqa: ANN401 - a class of the target
    rows: list[dict[str, Any]],
    *,
    numbered: bool,
) -> dict[str, list[Any]]:
    """Let the trainer write the records of a rollout; return the score and the response in each row's record.

    If a record has another prompt, answer or value beside the score or, where rows are ``numbered``, another request,
    all its tokens are :data:`WRONG`.
    """
    scores = [torch.tensor([0.0] * (len(row["tokens"]) - 1) + [row["reward"]]) for row in rows]
    texts = {
        name: pad_sequence([torch.tensor(row[key]) for row in rows], batch_first=True, padding_value=_PAD)
        for name, key in (("prompts", "prompt"), ("responses", "tokens"))
    }
    numbers = range(len(rows))
    about = {"reward_model": np.array([{"ground_truth": f"answer {n}"} for n in numbers], dtype=object)}
    if numbered:
        about["request_id"] = np.array([f"request {n}" for n in numbers], dtype=object)
    batch = proto.from_dict(
        tensors={**texts, "token_level_scores": pad_sequence(scores, batch_first=True)}, non_tensors=about
    )
    executor = {"_dump_executor": SimpleNamespace(submit=at_once), "_dump_futures": []}  # of releases that have them
    trainer: Any = bare_instance(owner, tokenizer=Words(), global_steps=1, **executor)
    names = vars(sys.modules[owner.__module__])
    with TemporaryDirectory() as folder:
        with replaced_globals(names, marked_timer=lambda *_about, **_more: nullcontext(), print=lambda *_text: None):
            trainer._log_rollout_data(batch, {"acc": list(numbers)}, {}, folder)  # noqa: SLF001 - as fit does
        lines = [line for file in Path(folder).iterdir() for line in file.read_text(encoding="utf-8").splitlines()]
    records = [json.loads(line) for line in lines]
    columns: dict[str, list[Any]] = {"rewards": [], "tokens": []}
    for n, row in enumerate(rows):
        record = records[n] if n < len(records) else {}
        request = f"request {n}" if numbered else None
        whole = [" ".join(map(str, row["prompt"])), request, f"answer {n}", n]
        right = [record.get(key) for key in ("input", "request_id", "gts", "acc")] == whole
        words = record["output"].split() if right else []
        columns["tokens"].append(fit_to_length([int(word) for word in words], len(row["tokens"]), WRONG))
        columns["rewards"].append(float(record.get("score", "inf")))
    return columns


def _records(*, numbered: bool) -> Boundary:
    reach = "trainer.rollout_data_dir is set, and trainer.use_v1=False"
    return one_call(
        path=PATH,
        stage="batch",
        call=written,
        name="written",
        arguments={
            **functions(owner=OWNER, proto=PROTO),
            "rows": EachRow(Table(row_fields("prompt", "tokens", "reward"))),
            "numbered": Constant(numbered),
        },
        produced_by={"rows": _PRODUCED},
        # The reward comes first: the check before an audit moves signals, and a token is a label.
        outputs=dict(reversed(row_outputs(Use("written"), "token", "reward").items())),
        settings={"records": {}},
        claims=claims("ray_trainer.py, _log_rollout_data, docstring: the rollout data of the batch", conserves=True),
        reach=f"{reach}; for requests, the rollout that gives them to rows" if numbered else reach,
        requires=(no_empty_response,),
    )
