"""The completions table that TRL's online trainers log: a check that each row describes one completion."""

import contextlib
import inspect
import io
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.requirements import equal_parts
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, RLOO, Prompts
from rl_sentinel.adapters.trl.rank_fakes import collectives
from rl_sentinel.adapters.trl.release import NAME, source_of
from rl_sentinel.adapters.trl.rollout_batch import FILL, ID_TOKENS, id_tokens
from rl_sentinel.adapters.trl.rollout_fakes import FIRST_WORD
from rl_sentinel.adapters.trl.scoring import rollout_conditions
from rl_sentinel.adapters.trl.token_differences import ROWS
from rl_sentinel.adapters.trl.two_ranks import rollout_ranks, score_rows
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: The step at which the table is written.
STEP = 7

#: How a release keeps the prompts of the rows for the table.
PROMPTS = '_logs["prompt"].extend(gather_object(prompts))'

#: The package that a table is logged with.
BACKEND = "wandb"

#: The name of the only reward function, which is a column of the table.
REWARD = "first"

_TABLE = (
    "grpo_config.py, log_completions: (prompt, completion) pairs with their rewards and advantages, of all processes"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the table of each trainer, in releases that log the rows' own prompts."""
    for kind, owner in (("grpo", GRPO), ("rloo", RLOO)):
        log = f"{owner}.log"
        if not target.has(log) or target.fails(owner) or "log" not in vars(target.find(owner)):
            continue
        scores = f"{owner}.{NAME}"  # earlier releases log decoded prompts, whose text differs from the rows'
        logs_prompts = target.has(scores) and PROMPTS in source_of(target.find(scores))
        if logs_prompts and "Table(dataframe=" in source_of(target.find(log)):
            yield from bindable(target, _table(target, kind, owner))


class Tables:
    """A fake logging package, which keeps the rows of each logged table."""

    def __init__(self) -> None:
        """Start with an empty list of tables."""
        self.tables: list[list[dict[str, Any]]] = []
        self.run = self

    def Table(self, dataframe: Any) -> Any:  # noqa: ANN401, N802 - as the package's
        """The rows of ``dataframe``; the logging package has a class of this name."""
        return dataframe.to_dict("records")

    def log(self, logged: dict[str, Any]) -> None:
        """Keep the table."""
        self.tables.append(logged["completions"])


def _table(target: Target, kind: str, owner: str) -> Boundary:
    return one_call(
        path=f"{owner}.{NAME} -> {owner}.log",
        stage="batch",
        call=write_table,
        name="table",
        arguments={
            "log": Constant(Function(f"{owner}.log")),
            "trainers": rollout_ranks(kind, {"kl_loss_coef": 0.0} if kind == "rloo" else {}, room=ID_TOKENS),
            "inputs": Prompts(),
        },
        fakes=collectives(target, kind),
        produced_by={"inputs": _TABLE},
        outputs={
            "advantage": Output("B", "reward", at=Use("table")["advantages"], form=ROWS),
            "number of columns from other samples": Output(
                "B", "count", "columns_of_others", at=Use("table")["others"], form=ROWS
            ),
        },
        settings={"table of completions": {"kl_loss_coef": 0.0} if kind == "rloo" else {}},
        claims=claims(_TABLE),
        reach="log_completions=True",
        requires=(*rollout_conditions(masked=True), equal_parts),
    )


def write_table(log: Callable[..., Any], trainers: list[Any], inputs: list[dict[str, str]]) -> dict[str, list[float]]:
    """Log the completions table after a rollout, and check it.

    Returns, per completion, ``advantages``: its advantage in the table; and ``others``: how many cells of its row are
    wrong, infinite if it has no row.
    """
    rewards = [reward for ready in trainers for reward in ready.rollout.rewards]
    sampled = [ready.rollout.completions for ready in trainers]
    named = iter(map(id_tokens, range(len(inputs))))
    for ready, completions in zip(trainers, sampled, strict=True):
        ready.rollout.completions = [[*next(named), *[FILL] * (len(ids) - 1), ids[-1]] for ids in completions]
        ready._logs = {name: empty_log(one, len(inputs)) for name, one in ready._logs.items()}  # noqa: SLF001 - what the table is made of
    first = trainers[0]
    advantages = torch.cat([batch["advantages"] for batch in score_rows(NAME, trainers, inputs)]).tolist()
    for ready, completions in zip(trainers, sampled, strict=True):
        ready.rollout.completions = completions
    table = logged_table(log, first)
    return _compare(table, inputs, rewards, advantages)


def logged_table(log: Callable[..., Any], trainer: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a trainer
    """Let the trainer log at :data:`STEP`, and return the rows of the logged table."""
    trainer.control, trainer.state, trainer.args = copy(trainer.control), copy(trainer.state), copy(trainer.args)
    trainer.state.log_history, trainer.state.global_step, trainer.log_completions = [], STEP, True
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        Path(folder, "completions").mkdir()
        trainer.args.output_dir = folder
        trainer.args.report_to = [BACKEND]
        module, logged = inspect.unwrap(log).__globals__, Tables()
        had = module.get(BACKEND)
        module[BACKEND] = logged  # the real package is not installed
        try:
            log(trainer, {"loss": 0.0})
        finally:
            module[BACKEND] = had
    (table,) = logged.tables
    return table


def _compare(
    table: list[dict[str, Any]], inputs: list[dict[str, str]], rewards: list[float], advantages: list[float]
) -> dict[str, list[float]]:
    names = [" ".join(f"w{token - FIRST_WORD}" for token in id_tokens(row)) for row in range(len(inputs))]
    found = {"advantages": [0.0] * len(inputs), "others": [float("inf")] * len(inputs)}
    for entry in table:
        row = names.index(" ".join(str(entry["completion"]).split()[:2]))
        expected = {"step": STEP, "prompt": inputs[row]["prompt"], REWARD: rewards[row], "advantage": advantages[row]}
        found["advantages"][row] = float(entry["advantage"])
        found["others"][row] = float(sum(not _same(entry[name], value) for name, value in expected.items()))
    return found


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401 - numbers or texts
    """Whether two cells are equal; numbers may differ by rounding."""
    if isinstance(other, str):
        return bool(one == other)
    return not isinstance(one, str) and abs(float(one) - float(other)) <= 1e-5 * max(1.0, abs(float(other)))


def empty_log(logged: Any, rows: int) -> Any:  # noqa: ANN401 - a deque, or a dict of them
    """An empty log buffer of the same type, with room for ``rows`` rows."""
    return deque(maxlen=rows) if isinstance(logged, deque) else defaultdict(lambda: deque(maxlen=rows))
