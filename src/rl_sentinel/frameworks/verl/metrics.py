"""verl's logged metrics of the data."""

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

#: Logged name, and the quantity that it says it is.
LOGGED = {
    "critic/score/mean": Output("", "reward", "reward.mean"),
    "critic/advantages/mean": Output("", "reward", "advantage.mean", over="live"),
    "response_length/mean": Output("", "tokens", "response_length.mean"),
}


#: The same, for releases whose metrics know no mask but the attention mask.
UNDECLARED = {name: replace(output, over="") for name, output in LOGGED.items()}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The metrics that the trainer logs at each step."""
    path = next((p for p in PLACES if target.has(p)), PLACES[0])
    try:
        target.find(path)
    except Unbindable as why:
        yield Unbound(path, "metric", str(why))
        return

    declared = knows_response_mask(target, path)

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        if not bool(batch.live.any()):
            message = "a batch without a trained token has no largest one"
            raise NotApplicable(message)
        data = data_of(target, batch, path)
        data.batch["advantages"] = batch.advantage
        data.batch["returns"] = batch.returns
        logged = target.call(path, data, use_critic=False)
        return {name: torch.tensor(float(logged[name])) for name in LOGGED}

    yield Boundary(
        path=path,
        stage="metric",
        call=call,
        reads=frozenset({"reward", "mask", "length", "advantage", "returns"}),
        outputs=LOGGED if declared else UNDECLARED,
        reach="every run",
    )
