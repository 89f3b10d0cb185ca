"""The metrics that SkyRL's generator returns beside its responses, for training or evaluation."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import Cell, RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.skyrl.arguments import CONFIG
from rl_sentinel.adapters.skyrl.generator import (
    GENERATOR,
    PATH,
    SAMPLING,
    TRAJECTORY,
    doubles,
    one_turn,
    output_of,
)
from rl_sentinel.adapters.skyrl.generator_doubles import (
    Engine,
    Script,
    Turn,
    id_of,
)
from rl_sentinel.adapters.skyrl.metrics import LOGGED, ROLLOUT
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
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
    """The metrics of a batched call whose engine may sample more tokens than the limit."""
    sampling = next((path for path in SAMPLING if target.has(path)), "")
    if not sampling or not target.has(PATH) or target.fails(PATH) or not target.has(ROLLOUT):
        return
    section = Config(CONFIG, {_BATCHED: True}, {}, section="generator")
    try:
        Config(CONFIG, {_BATCHED: True, _LENGTH: 1}).check(target)
    except Unbindable as why:
        yield Unbound(PATH, "metric", str(why))
        return
    yield from bindable(target, _metrics(target, sampling, section))


def measure(  # noqa: PLR0913 - classes of the target, and their arguments
    generator: Callable[..., Any],
    sampling: Callable[..., dict[str, Any]],
    trajectory: Callable[..., Any] | None,
    config: Any,  # noqa: ANN401 - the target's section
    rows: list[dict[str, Any]],
    room: int,
) -> dict[str, float]:
    """The rollout metrics of single-turn responses of at most ``room`` tokens; a longer sampled response is cut."""
    config.sampling_params.max_generate_length = room  # set for each case, since the section is made once per setting
    scripts = []
    for number, row in enumerate(rows):
        size = len(row["tokens"]) + (_MORE if len(row["tokens"]) == room else 0)
        turn = Turn([id_of(number, position) for position in range(size)], [-0.5] * size, "length", [])
        scripts.append(Script([turn], row["reward"]))
    output = output_of(generator, sampling, trajectory, config, Engine(scripts), scripts)
    metrics: dict[str, float] = output["rollout_metrics"]
    return metrics


def _metrics(target: Target, sampling: str, section: Config) -> Boundary:
    source = inspect.getsource(target.find(ROLLOUT))
    names = [name for name in LOGGED if "rewards" not in name and re.search(rf"""["']{name}["']""", source)]
    step = Step(
        call=measure,
        name="metrics",
        arguments={
            "generator": Constant(Function(GENERATOR)),
            "sampling": Constant(Function(sampling)),
            "trajectory": Constant(Function(TRAJECTORY) if target.has(TRAJECTORY) else None),
            "config": section,
            "rows": EachRow(Table({"tokens": RowTokens("token", "int"), "reward": Cell("reward")})),
            "room": Derived(lambda inputs: inputs.batch.width),
        },
        produced_by=_PRODUCED,
        doubles=doubles(target),
    )
    return Boundary(
        path=PATH,
        stage="metric",
        steps=(step,),
        reads=frozenset({"length", "mask"}),
        outputs={name: replace(LOGGED[name], at=Use("metrics")[name]) for name in names},
        settings={"batched, metrics": {}},
        claims=claims(_DOCS),
        reach="generator.batched=true; generator.eval_sampling_params.max_generate_length above that of training",
        requires=(no_empty_response, one_turn),
    )
