"""slime's two forms of generalised advantage estimation: a loop, and a scan in chunks."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.layout import put_ragged, take_ragged, token_rewards
from rl_sentinel.frameworks.slime.ragged import PPO
from rl_sentinel.frameworks.target import Target

LOOP = f"{PPO}.vanilla_gae"
CHUNKS = f"{PPO}.chunked_gae"

SETTINGS: Mapping[str, Settings] = {
    "default": {"gamma": 1.0, "lambd": 1.0},
    "discounted": {"gamma": 0.9, "lambd": 0.95},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The loop, then the scan as its twin."""
    for path, twins in ((LOOP, ()), (CHUNKS, (LOOP,))):
        try:
            target.find(path)
            yield _boundary(target, path, twins)
        except Unbindable as why:
            yield Unbound(path, "advantage", str(why))


def _boundary(target: Target, path: str, twins: tuple[str, ...]) -> Boundary:
    def padded(column: Tensor, batch: Batch) -> Tensor:
        """The caller pads each sample with zeros to the longest."""
        return take_ragged(put_ragged(column, batch.length), batch.width)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        rewards, values = padded(token_rewards(batch), batch), padded(batch.value, batch)
        advantage, returns = target.call(path, rewards, values, **settings)
        return {"advantage": advantage, "returns": returns}

    return Boundary(
        path=path,
        stage="advantage",
        call=call,
        reads=frozenset({"reward", "token_reward", "value", "length"}),
        outputs={
            "advantage": Output("B T", "reward", "advantage"),
            "returns": Output("B T", "reward", "returns"),
        },
        settings=SETTINGS,
        claims=claims("ppo_utils.py, the docstring", credit="temporal", scope="sequence", algorithm="gae"),
        twins=twins,
        reach="--advantage-estimator ppo",
    )
