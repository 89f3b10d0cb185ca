"""The records that SkyRL writes of an evaluation: prompt, response and score of each row."""

import inspect
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, fit_to_length
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.skyrl.rollout import GENERATED
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

DUMP = "skyrl.train.utils.trainer_utils.dump_per_dataset_eval_results"

#: Keys of a record, which the function writes.
_KEYS = ("input_prompt", "output_response", "score", "stop_reason", "env_class", "env_extras", "data_source")


class Words:
    """A tokenizer whose words are token ids."""

    def decode(self, ids: list[int], **_options: object) -> str:
        """The ids as words."""
        return " ".join(map(str, ids))


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of dumped records of an evaluation, in releases that write these keys."""
    if target.has(DUMP) and all(key in inspect.getsource(target.find(DUMP)) for key in _KEYS):
        yield from bindable(target, _records())


def dump(write: Callable[..., Any], rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Dump an evaluation, and return the score and the response in the record of each row.

    Two data sets take turns. Missing tokens are :data:`WRONG`; if there are too many tokens, the last one is. If a
    record has a wrong prompt, stop reason, environment or task, all its tokens are :data:`WRONG`.
    """
    numbers = range(len(rows))
    output = {
        "prompt_token_ids": [row["prompt"] for row in rows],
        "response_ids": [row["tokens"] for row in rows],
        "rewards": [row["reward"] for row in rows],
        "stop_reasons": [f"reason {n}" for n in numbers],
    }
    tasks = [f"task{n % 2}" for n in numbers]
    environments, extras = [f"environment {n}" for n in numbers], [{"row": n} for n in numbers]
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), Words(), output, tasks, environments, extras, {})
        records = [
            json.loads(line)
            for task in sorted(set(tasks))
            for line in (Path(folder) / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()
        ]
    by_row = {record["env_extras"]["row"]: record for record in records}
    columns: dict[str, list[Any]] = {"rewards": [], "tokens": []}
    for n, row in enumerate(rows):
        about = (Words().decode(row["prompt"]), f"reason {n}", environments[n], tasks[n])
        right = tuple(by_row[n][k] for k in ("input_prompt", "stop_reason", "env_class", "data_source")) == about
        words = by_row[n]["output_response"].split() if right else []
        columns["tokens"].append(fit_to_length([int(word) for word in words], len(row["tokens"]), WRONG))
        columns["rewards"].append(float(by_row[n]["score"]))
    return columns


def _records() -> Boundary:
    row = Table(row_fields("prompt", "tokens", "reward"))
    return one_call(
        path=DUMP,
        stage="batch",
        call=dump,
        name="dumped",
        arguments={"write": Constant(Function(DUMP)), "rows": EachRow(row)},
        produced_by={"rows": GENERATED},
        # The reward comes first: the check before an audit moves signals, and a token is a label.
        outputs=dict(reversed(row_outputs(Use("dumped"), "token", "reward").items())),
        claims=claims("trainer_utils.py, dump_per_dataset_eval_results: a record of each response", conserves=True),
        reach="trainer.dump_eval_results=true",
        requires=(no_empty_response,),
    )
