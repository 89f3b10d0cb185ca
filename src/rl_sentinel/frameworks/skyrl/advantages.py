"""SkyRL's advantage estimators: everything in its registry, called directly."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.binding import bound, takes
from rl_sentinel.frameworks.layout import put_right, token_rewards
from rl_sentinel.frameworks.skyrl.batches import MODULE, back, right, uids
from rl_sentinel.frameworks.target import Target

REGISTRY = f"{MODULE}.AdvantageEstimatorRegistry"

#: The estimator that every release has, so that a failed import is told by name.
EVERYWHERE = f"{MODULE}.compute_grpo_outcome_advantage"

#: With rewards 0 and x, mean x/2, the advantage is 1 whatever x is.
_BY_MEAN = "ppo_utils.py, compute_maxrl_advantage: divided by the group's mean, so that a size may cancel"

_DOC = "ppo_utils.py, the estimator's docstring"
_BY_UID = claims("ppo_utils.py: scores are gathered by index, the uids of the prompts", grouping="id")

#: What the estimators say of themselves, by the name that they are registered under.
CLAIMS: Mapping[str, Claims] = {
    "grpo": _BY_UID | claims(_DOC, scope="group", credit="outcome", baseline="relative", algorithm="grpo"),
    "rloo": _BY_UID | claims(_DOC, scope="group", credit="outcome", baseline="relative", algorithm="rloo"),
    "maxrl": _BY_UID
    | claims(_DOC, scope="group", credit="outcome", algorithm="maxrl")
    | claims(_BY_MEAN, order_statistic=True),
    "gae": claims(_DOC, scope="batch", credit="temporal", algorithm="gae"),
    "reinforce++": claims(_DOC, scope="batch", credit="temporal", algorithm="reinforce++"),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per estimator of the registry."""
    try:
        found = registered(target, REGISTRY)
    except Unbindable as why:
        yield Unbound(EVERYWHERE, "advantage", str(why))
        return
    for name, function in found.items():
        try:
            target.source(function)
            yield _boundary(target, name, function)
        except Unbindable as why:
            yield Unbound(path_of(function), "advantage", str(why))


def registered(target: Target, registry: str) -> dict[str, Callable[..., Any]]:
    """Registered name to function."""
    found = target.find(registry)
    return {str(name): found.get(name) for name in found.list_available()}


def path_of(function: Callable[..., Any]) -> str:
    """The dotted path of a function."""
    return f"{function.__module__}.{function.__qualname__}"


def _boundary(target: Target, name: str, function: Callable[..., Any]) -> Boundary:
    path, temporal = path_of(function), name in ("gae", "reinforce++")
    reads = {"reward", "length"} | ({"token_reward"} if temporal else set())
    reads |= {"group"} if takes(function, "group") else set()
    reads |= {"value"} if takes(function, "values") else set()

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        roles = {
            "token_rewards": put_right(token_rewards(batch), batch.length),
            "mask": put_right(batch.valid.float(), batch.length),
            "group": uids(batch),
            "values": right(batch, "value"),
            "gamma": settings.get("gamma", 1.0),
            "lambda": settings.get("lambd", 1.0),
            "standardise": settings.get("grpo_norm_by_std", True),
        }
        advantage, returns = target.call(path, **bound(function, roles))
        return {"advantage": back(advantage, batch), "returns": back(returns, batch)}

    bound(function, dict.fromkeys(("token_rewards", "mask", "group", "values", "gamma", "lambda", "standardise")))
    families: dict[str, Settings] = {"default": {}}
    if takes(function, "standardise"):
        families["no-std"] = {"grpo_norm_by_std": False}
    if temporal:
        families["discounted"] = {"gamma": 0.9, "lambd": 0.95}
    return Boundary(
        path=path,
        stage="advantage",
        call=call,
        reads=frozenset(reads),
        outputs={
            "advantage": Output("B T", "reward", "advantage"),
            "returns": Output("B T", "reward", "returns"),
        },
        settings=families,
        claims=CLAIMS.get(name, Claims()),
        reach=f"trainer.algorithm.advantage_estimator={name}",
    )
