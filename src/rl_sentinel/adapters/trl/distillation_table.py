"""The completions table that TRL's distillation logs: a check that each row describes one completion."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.requirements import equal_parts, no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.value_codecs import Derived, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import DISTILLATION, Prompts, trainer
from rl_sentinel.adapters.trl.completions_table import STEP, empty_log, logged_table
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.rank_fakes import collectives
from rl_sentinel.adapters.trl.release import NAME, source_of
from rl_sentinel.adapters.trl.rollout_batch import FILL, id_tokens, unpacked_names
from rl_sentinel.adapters.trl.rollout_fakes import FIRST_WORD, ready_to_train
from rl_sentinel.adapters.trl.token_differences import ROWS
from rl_sentinel.adapters.trl.two_ranks import EachRank
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

_TABLE = "distillation_config.py, log_completions: (prompt, completion) pairs; the table has those of all processes"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the table, in releases that log a table."""
    scores, log = f"{DISTILLATION}.{NAME}", f"{DISTILLATION}.log"
    if not all(map(target.has, (scores, log))) or target.fails(DISTILLATION):
        return
    if '_logs["prompt"]' in source_of(target.find(scores)) and "Table(dataframe=" in source_of(target.find(log)):
        yield from bindable(target, _table(target, scores, log))


def ready_to_log(trainer: Any, rank: int, ranks: int, lengths: Tensor) -> Any:  # noqa: ANN401 - a trainer
    """The trainer of a rank before it samples completions of these lengths."""
    ready = ready_to_train(trainer, 1, None, rank, ranks)
    ready.log_completions, ready.sampled = True, SimpleNamespace(lengths=lengths)
    return ready


def logged_rows(
    entry: Callable[..., Any],
    log: Callable[..., Any],
    trainers: list[Any],
    inputs: list[dict[str, str]],
) -> dict[str, list[float]]:
    """Log the completions table after each rank has sampled, and check it.

    Returns, per completion, ``tokens``: its tokens in the table, less those of its id; and ``others``: how many cells
    of its row are wrong, infinite if it has no row.
    """
    labels = {text: number for number, text in enumerate(dict.fromkeys(row["prompt"] for row in inputs))}
    prompts = [[FIRST_WORD + labels[row["prompt"]]] for row in inputs]
    counts = [int(n) for ready in trainers for n in ready.sampled.lengths.sum(1)]
    sampled = [[*id_tokens(row), *[FILL] * count] for row, count in enumerate(counts)]
    size = len(inputs) // len(trainers)
    for rank, ready in enumerate(trainers):
        part = slice(rank * size, (rank + 1) * size)
        ready._logs = {name: empty_log(one, len(inputs)) for name, one in ready._logs.items()}  # noqa: SLF001 - what the table is made of
        ready._generate = _sampling(entry, prompts[part], sampled[part])  # noqa: SLF001 - where it samples
    run_on_ranks(len(trainers), lambda rank: entry(trainers[rank], inputs[rank * size : (rank + 1) * size]))
    found = {"tokens": [0.0] * len(inputs), "others": [float("inf")] * len(inputs)}
    texts = [" ".join(f"w{token - FIRST_WORD}" for token in ids) for ids in sampled]
    for cells in logged_table(log, trainers[0]):
        words = str(cells["completion"]).split()
        row = next(n for n, text in enumerate(texts) if text.split()[:2] == words[:2])
        expected = {"step": STEP, "prompt": f"w{prompts[row][0] - FIRST_WORD}", "completion": texts[row]}
        found["tokens"][row] = float(len(words) - len(id_tokens(row)))
        found["others"][row] = float(sum(cells[name] != value for name, value in expected.items()))
    return found


def _sampling(entry: Callable[..., Any], prompts: list[list[int]], completions: list[list[int]]) -> Callable[..., Any]:
    """A fake ``_generate``: it returns known ids, in the order of the names that its caller unpacks."""
    known = {
        "prompt": prompts,
        "completion": completions,
        "tool_mask": [[1] * len(ids) for ids in completions],
        "tool_images": [],
    }
    names = unpacked_names(entry, "_generate")
    returned = tuple(next((v for key, v in known.items() if name.startswith(key)), None) for name in names)
    return lambda _prompts: returned


def _table(target: Target, scores: str, log: str) -> Boundary:
    parts = {
        "trainer": trainer("distillation", {}),
        "rank": Derived(lambda inputs: inputs.part[0]),
        "ranks": Derived(lambda inputs: inputs.part[1]),
        "lengths": ResponseMask(NoPadding()),
    }
    at = {"trainer": "", "rank": "accelerator.process_index", "ranks": "accelerator.num_processes"}
    return one_call(
        path=f"{scores} -> {log}",
        stage="batch",
        call=logged_rows,
        name="table",
        arguments={
            **functions(entry=scores, log=log),
            "trainers": EachRank(Object(ready_to_log, parts, at=at | {"lengths": "sampled.lengths"})),
            "inputs": Prompts(),
        },
        fakes=collectives(target, "distillation"),
        produced_by={"inputs": _TABLE},
        outputs={
            "tokens of the completion": Output("B", "tokens", at=Use("table")["tokens"], form=ROWS),
            "number of columns from other samples": Output(
                "B", "count", "columns_of_others", at=Use("table")["others"], form=ROWS
            ),
        },
        settings={"table of completions": {}},
        claims=claims(_TABLE),
        reach="log_completions=True",
        requires=(no_empty_response, prompts_are_contiguous, equal_parts),
    )
