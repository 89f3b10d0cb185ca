"""The metrics that SkyRL's generator returns with the responses, and scores computed from the returned rewards."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import Cell
from rl_sentinel.adapters.kit.row_outputs import row_fields
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, functions
from rl_sentinel.adapters.skyrl.arguments import CONFIG, UIDS
from rl_sentinel.adapters.skyrl.evaluation import METRICS as SCORES
from rl_sentinel.adapters.skyrl.evaluation import SCORED, logged_scores, metrics_by_name
from rl_sentinel.adapters.skyrl.generated_rows import script_of
from rl_sentinel.adapters.skyrl.generator import (
    GENERATOR,
    PATH,
    SAMPLING,
    TRAJECTORY,
    fakes,
    one_turn,
    output_of,
    sampled_at_both_ends,
)
from rl_sentinel.adapters.skyrl.generator_fakes import (
    Engine,
    Script,
    Turn,
    id_of,
)
from rl_sentinel.adapters.skyrl.metrics import LOGGED, ROLLOUT
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs
from rl_sentinel.core.errors import Unbindable

#: Tokens that the engine samples after the limit of training responses.
_MORE = 2

_BATCHED = "generator.batched"
_LENGTH = "generator.sampling_params.max_generate_length"

_DOCS = (
    "skyrl_gym_generator.py: rollout_metrics of the responses that it returns (response_ids), which are cut to the "
    "max_generate_length of training"
)
_PRODUCED = {
    "rows": "evaluate.py, evaluate: generator.generate with eval_sampling_params, whose max_generate_length may be "
    "larger than that of sampling_params; a response of that length has no end of sequence"
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the metrics of a batched call, and of the scores of conversations.

    In the batched call, the engine samples more tokens than the limit for the longest responses.
    """
    sampling = next((path for path in SAMPLING if target.has(path)), "")
    if not sampling or not target.has(PATH) or target.fails(PATH) or not target.has(ROLLOUT):
        return
    section = Config(CONFIG, {_BATCHED: True}, {}, section="generator")
    try:
        Config(CONFIG, {_BATCHED: True, _LENGTH: 1}).check(target)
    except Unbindable as why:
        yield Unbound.because(PATH, "metric", why)
        return
    yield from bindable(target, _metrics(target, sampling, section))
    if target.has(SCORES):
        yield from bindable(target, _scores(target, sampling, "conversation"))
        yield from bindable(target, _scores(target, sampling, "one turn", one_turn))


def measure(  # noqa: PLR0913 - classes of the target, and their arguments
    generator: Callable[..., Any],
    sampling: Callable[..., dict[str, Any]],
    trajectory: Callable[..., Any] | None,
    config: Any,  # noqa: ANN401 - the target's section
    rows: list[dict[str, Any]],
    room: int,
) -> dict[str, float]:
    """Generate single-turn responses of at most ``room`` tokens, and return the rollout metrics.

    The engine samples more tokens for a response of ``room`` tokens; the generator must cut them.
    """
    config.sampling_params.max_generate_length = room  # set for each case, since the section is made once per setting
    scripts = []
    for number, row in enumerate(rows):
        size = len(row["tokens"]) + (_MORE if len(row["tokens"]) == room else 0)
        turn = Turn([id_of(number, position) for position in range(size)], [-0.5] * size, "length", [])
        scripts.append(Script([turn], row["reward"]))
    output = output_of(generator, sampling, trajectory, config, Engine(scripts), scripts)
    metrics: dict[str, float] = output["rollout_metrics"]
    return metrics


def score(  # noqa: PLR0913 - code of the target, and the arguments of the boundary
    generator: Callable[..., Any],
    sampling: Callable[..., dict[str, Any]],
    trajectory: Callable[..., Any] | None,
    measure_all: Callable[..., Any],
    config: Any,  # noqa: ANN401 - the target's section
    rows: list[dict[str, Any]],
    uids: list[str],
) -> dict[str, float]:
    """Generate conversations with a reward after the last turn, and return their scores; a missing score is NaN."""
    scripts = [script_of(number, row, "eos", closing=False) for number, row in enumerate(rows)]
    output = output_of(generator, sampling, trajectory, config, Engine(scripts), scripts)
    scores = metrics_by_name(measure_all(output, uids))
    return {name: float("nan") if value is None else value for name, value in scores.items()}


def _scores(target: Target, sampling: str, name: str, *requires: Callable[[Inputs], str]) -> Boundary:
    row = row_fields("tokens", "mask", "logprobs")
    return one_call(
        path=f"{PATH} -> {SCORES}",
        stage="metric",
        call=score,
        name="scores",
        arguments={
            **functions(generator=GENERATOR, sampling=sampling),
            "trajectory": Constant(Function(TRAJECTORY) if target.has(TRAJECTORY) else None),
            "measure_all": Constant(Function(SCORES)),
            "config": Config(CONFIG, {_BATCHED: False}, {}, section="generator"),
            "rows": EachRow(Table({**row, "reward": Cell("reward")})),
            "uids": UIDS,
        },
        produced_by={
            "rows": "skyrl_gym, envs: most environments give the reward of a conversation after its last turn; "
            "evaluate.py, evaluate: generator.generate, then get_metrics_from_generator_output"
        },
        fakes=fakes(target),
        reads=frozenset({"reward", "group"}),
        outputs={name: replace(output, at=Use("scores")[name]) for name, output in logged_scores(target).items()},
        settings={f"{name}, scores": {}},
        claims=SCORED,
        reach="every evaluation",
        requires=(no_empty_response, sampled_at_both_ends, *requires),
    )


def _metrics(target: Target, sampling: str, section: Config) -> Boundary:
    source = inspect.getsource(target.find(ROLLOUT))
    names = [name for name in LOGGED if "rewards" not in name and re.search(rf"""["']{name}["']""", source)]
    return one_call(
        path=PATH,
        stage="metric",
        call=measure,
        name="metrics",
        arguments={
            **functions(generator=GENERATOR, sampling=sampling),
            "trajectory": Constant(Function(TRAJECTORY) if target.has(TRAJECTORY) else None),
            "config": section,
            "rows": EachRow(Table(row_fields("tokens", "reward"))),
            "room": Derived(lambda inputs: inputs.batch.width),
        },
        produced_by=_PRODUCED,
        fakes=fakes(target),
        reads=frozenset({"length", "mask"}),
        outputs={name: replace(LOGGED[name], at=Use("metrics")[name]) for name in names},
        settings={"batched, metrics": {}},
        claims=claims(_DOCS),
        reach="generator.batched=true; generator.eval_sampling_params.max_generate_length above that of training",
        requires=(no_empty_response, one_turn),
    )
