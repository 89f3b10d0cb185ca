"""Boundaries of the managers of verl's reward loop: the column from which the data source of a response is read."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.value_codecs import Knob, constants, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import section
from rl_sentinel.adapters.verl.reward_fakes import SOURCE, SPECIAL, Tokens, score_in_this_process
from rl_sentinel.adapters.verl.rewards import EARLIER_LOOP, LOOP, source_column
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Settings

SETTING = "data.reward_fn_key"

#: A data set whose column for the choice of the reward is not the default one.
CHOSEN: Settings = {SETTING: "source"}

_DOCS = (
    "trainer/config/data/legacy_data.yaml, reward_fn_key: the field used to select the reward function (if using "
    "different ones per example)"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per manager, in releases whose configuration has the column."""
    for path in (*LOOP.values(), *EARLIER_LOOP.values()):
        if target.locate(path) == path and source_column(target) == CHOSEN[SETTING]:
            yield from try_bind(target, path, "config", partial(_source, target, path))


def source_at_scorer(
    kind: Callable[..., Any],
    batch: Callable[..., Any],
    config: Any,  # noqa: ANN401 - a section of the target's configuration
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """Score one response; return 1 if the scorer gets the data source from the configured column, else 0."""
    labels = {"data_source": _column("another"), str(options[SETTING]): _column(SOURCE), "extra_info": _column({})}
    labels["reward_model"] = _column({"ground_truth": "1"})
    token = torch.ones(1, 1, dtype=torch.int64)
    tensors = {"prompts": SPECIAL * token, "responses": token, "attention_mask": torch.cat([token, token], dim=1)}

    def score(*, data_source: object, **_about: object) -> float:
        return arrives(SOURCE, data_source)

    async def run() -> float:
        manager = kind(config, Tokens(), score)
        return float((await manager.run_single(batch(tensors, labels)))["reward_score"])

    return dict.fromkeys(places, asyncio.run(run()))


def _column(value: object) -> Any:  # noqa: ANN401 - an array of one object
    return np.array([value, None], dtype=object)[:-1]


def _source(target: Target, path: str) -> Iterator[Boundary]:
    score_in_this_process(target.module(path.rpartition(".")[0]))
    reward = Table({"reward_kwargs": Table({}), **constants(num_workers=1)})
    parts = {"reward": reward, "reward_model": reward, "data": Table({"reward_fn_key": Knob(SETTING)})}
    yield bind_arriving(
        f"{path}.run_single",
        source_at_scorer,
        {
            **functions(kind=path, batch="verl.DataProto.from_dict"),
            "config": section({**parts, **constants(trainer={"experiment_name": "house"})}),
        },
        {"column of the data source": SETTING},
        settings={"another column": CHOSEN},
        cite=_DOCS,
        reach="data.reward_fn_key, in a data set that has a column data_source too",
    )
