"""SkyRL's advantage estimators: each function of its registry, called directly."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import Cast
from rl_sentinel.adapters.kit.roles import by_role, takes
from rl_sentinel.adapters.kit.value_codecs import Knob
from rl_sentinel.adapters.skyrl.arguments import MODULE, PRODUCED_BY, UIDS, Arguments, arguments
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import Unbindable

REGISTRY = f"{MODULE}.AdvantageEstimatorRegistry"

#: An estimator that every release has: the path that a failed import is reported under.
EVERYWHERE = f"{MODULE}.compute_grpo_outcome_advantage"

#: The size of the rewards cancels: with rewards 0 and x the mean is x/2, and the advantage of x is always 1.
_BY_MEAN = "ppo_utils.py, compute_maxrl_advantage: divided by the group's mean, so that the reward's size may cancel"

_DOC = "ppo_utils.py, the estimator's docstring"
_BY_UID = claims("ppo_utils.py: scores are grouped by index, the uids of the prompts", grouping="id")

#: Registered name -> the estimator's claims.
CLAIMS: Mapping[str, Claims] = {
    "grpo": _BY_UID | claims(_DOC, scope="group", credit="outcome", baseline="relative", algorithm="grpo"),
    "rloo": _BY_UID | claims(_DOC, scope="group", credit="outcome", baseline="relative", algorithm="rloo"),
    "maxrl": _BY_UID
    | claims(_DOC, scope="group", credit="outcome", algorithm="maxrl")
    | claims(_BY_MEAN, order_statistic=True),
    "gae": claims(_DOC, scope="batch", credit="temporal", algorithm="gae"),
    "reinforce++": claims(_DOC, scope="batch", credit="temporal", algorithm="reinforce++"),
}

#: Estimators that credit a token with the rewards after it.
TEMPORAL = ("gae", "reinforce++")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary for each estimator of the registry."""
    try:
        functions, forms = registered(target, REGISTRY), arguments(target)
    except Unbindable as why:
        yield Unbound.because(EVERYWHERE, "advantage", why)
        return
    for name, function in functions.items():
        try:
            target.source(function)
            yield from bindable(target, _boundary(name, function, forms))
        except Unbindable as why:
            yield Unbound.because(path_of(function), "advantage", why)


def registered(target: Target, registry: str) -> dict[str, Callable[..., Any]]:
    """The functions of a registry, by name."""
    entries = target.find(registry)
    return {str(name): entries.get(name) for name in entries.list_available()}


def path_of(function: Callable[..., Any]) -> str:
    """The dotted path of a function."""
    return f"{function.__module__}.{function.__qualname__}"


def _boundary(name: str, function: Callable[..., Any], forms: Arguments) -> Boundary:
    path, temporal = path_of(function), name in TEMPORAL
    roles = {
        "token_rewards": forms.rewards,
        "mask": forms.response_mask,
        "group": UIDS,
        "values": forms.column("value"),
        "gamma": Knob("gamma", 1.0),
        "lambda": Knob("lambd", 1.0),
        "standardize": Knob("grpo_norm_by_std", default=True),
    }
    families: dict[str, Settings] = {"default": {}}
    if takes(function, "standardize"):
        families["no-std"] = {"grpo_norm_by_std": False}
    if temporal:
        families["discounted"] = {"gamma": 0.9, "lambd": 0.95}
    return one_call(
        path=path,
        stage="advantage",
        call=path,
        name="result",
        arguments=by_role(function, roles),
        produced_by={"response_mask": PRODUCED_BY},
        unused=frozenset() if temporal else frozenset({"token_reward"}),
        outputs=advantage_outputs(forms, Use("result")[0], Use("result")[1]),
        settings=families,
        claims=CLAIMS.get(name, Claims()),
        reach=f"trainer.algorithm.advantage_estimator={name}",
    )


def advantage_outputs(forms: Arguments, advantage: Use, returns: Use) -> Mapping[str, Output]:
    """The outputs of an estimator; ``advantage`` and ``returns`` are their places in its result."""
    return {
        "advantage": Output("B T", "reward", "advantage", at=advantage, form=Cast(forms.form, torch.float32)),
        "returns": Output("B T", "reward", "returns", at=returns, form=Cast(forms.form, torch.float32)),
    }
