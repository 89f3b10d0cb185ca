"""verl's logged metrics of the data."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import NotApplicable, Unbindable
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.dispatch import data_of, knows_response_mask

#: Where releases have it, newest first.
PLACES = (
    "verl.trainer.ppo.metric_utils.compute_data_metrics",
    "verl.trainer.ppo.ray_trainer.compute_data_metrics",
)

#: Statistics that are logged of most quantities.
_STATISTICS = ("mean", "max", "min")

#: Logged name, and the quantity that it says it is.
LOGGED: Mapping[str, Output] = {
    **{f"critic/score/{s}": Output("", "reward", f"outcome.{s}") for s in _STATISTICS},
    **{f"critic/rewards/{s}": Output("", "reward", f"shaped_reward.{s}") for s in _STATISTICS},
    **{f"critic/advantages/{s}": Output("", "reward", f"advantage.{s}", over="live") for s in _STATISTICS},
    **{f"critic/returns/{s}": Output("", "reward", f"returns.{s}", over="live") for s in _STATISTICS},
    **{f"critic/values/{s}": Output("", "reward", f"value.{s}", over="live") for s in _STATISTICS},
    "critic/vf_explained_var": Output("", "", "explained_variance"),
    **{f"response_length/{s}": Output("", "tokens", f"response_length.{s}") for s in _STATISTICS},
    "response_length_non_aborted/mean": Output("", "tokens", "response_length.mean"),
    "response_length/clip_ratio": Output("", "", "full_length.mean"),
    "response_length_non_aborted/clip_ratio": Output("", "", "full_length.mean"),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The metrics that the trainer logs at each step."""
    path = next((p for p in PLACES if target.has(p)), PLACES[0])
    try:
        target.find(path)
    except Unbindable as why:
        yield Unbound(path, "metric", str(why))
        return

    declared = knows_response_mask(target, path)
    source = inspect.getsource(target.find(path))
    named = {n: o for n, o in LOGGED.items() if re.search(rf"""["']{re.escape(n)}["']""", source)}
    logs = {n: o if declared else replace(o, over="") for n, o in named.items()}
    if not logs:
        yield Unbound(path, "metric", f"{path} logs none of {', '.join(LOGGED)}")
        return

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        if not bool(batch.live.any()):
            message = "a batch without a trained token has no largest one"
            raise NotApplicable(message)
        data = data_of(target, batch, path)
        data.batch["advantages"] = batch.advantage
        data.batch["returns"] = batch.returns
        data.batch["token_level_scores"] = data.batch["token_level_scores"] - batch.token_reward
        logged = target.call(path, data, use_critic=True)
        return {name: torch.tensor(float(logged[name])) for name in logs}

    yield Boundary(
        path=path,
        stage="metric",
        call=call,
        reads=frozenset({"reward", "token_reward", "mask", "length", "advantage", "returns", "value"}),
        outputs=logs,
        reach="every run",
    )
