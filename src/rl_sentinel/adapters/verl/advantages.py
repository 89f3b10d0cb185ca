"""Boundaries of verl's advantage estimators, called directly."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import Cast, Padded
from rl_sentinel.adapters.kit.roles import by_role, takes
from rl_sentinel.adapters.kit.value_codecs import Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, ROLES, UIDS, algorithm, critic_values
from rl_sentinel.adapters.verl.registries import ESTIMATORS, MODULE, failed_registrations, registered
from rl_sentinel.adapters.verl.source_names import ENDINGS, decorated_functions, defined_functions
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims, value_of
from rl_sentinel.core.errors import Unbindable

#: Estimators of every release: used if the source cannot be read.
EVERYWHERE = ("compute_gae_advantage_return", "compute_grpo_outcome_advantage")

_OTB = "docstring: for each timestep in each prompt group a baseline of the returns, weighted by the path's variance"


def _rloo(name: str) -> Claims:
    cite = f"{name}, docstring: RLOO, arXiv 2402.14740, whose baseline is the mean of the prompt's other responses"
    return claims(cite, scope="group", credit="outcome", baseline="relative", algorithm="rloo")


_OUTCOME = "docstring: operating only on Outcome reward, one scalar for each response; "

#: Claim of estimators that group rows by uid.
_GROUPED = claims(
    "compute_grpo_outcome_advantage, docstring: index array for grouping; ray_trainer.compute_advantage gives the uid "
    "of each row's prompt as index",
    grouping="id",
)

_WHITENED = (
    "the last step, torch_functional.masked_whiten, docstring: normalizes with mean and variance computed over mask"
)

#: Whitening moves untrained tokens away from 0. GAE does not reset them, because no later code reads them.
_ZEROED = claims("its code multiplies the advantage by response_mask, as all estimators of outcomes do", masked=True)

_BY_GROUP = "its response is compared with the others of its prompt, by the definition in "

#: Registered name -> claims, from the docstring, which names the paper.
CLAIMS: Mapping[str, Claims] = {
    "gae": claims("docstring: Generalized Advantage Estimation, arXiv 1506.02438", credit="temporal", algorithm="gae")
    | claims(_WHITENED, scope="batch"),
    "grpo": _GROUPED
    | claims(_OUTCOME + "GRPO", credit="outcome", algorithm="grpo")
    | claims(_BY_GROUP + "arXiv 2402.03300, section 4.1.2", scope="group", baseline="relative"),
    "grpo_vectorized": _GROUPED
    | claims(
        "docstring: the reward minus the mean of its group, divided by the deviation, broadcast over the tokens",
        scope="group",
        credit="outcome",
        baseline="relative",
        algorithm="grpo",
    )
    | claims("groupwise.group_mean_std, docstring: the squares are divided by count - 1", deviation="n - 1"),
    "grpo_passk": _GROUPED
    | claims(
        "docstring: an outcome reward formulation of arXiv 2503.19595; only the best response per group gets a "
        "non-zero advantage, the margin to the second best",
        scope="group",
        credit="outcome",
        order_statistic=True,
        algorithm="pass@k",
    ),
    "reinforce_plus_plus_baseline": _GROUPED
    | _ZEROED
    | claims(_OUTCOME + "RF++-baseline, arXiv 2501.03262", credit="outcome", algorithm="reinforce++ baseline")
    | claims(_WHITENED, scope="batch"),
    "rloo": _GROUPED | _rloo("rloo"),
    "rloo_vectorized": _GROUPED | _rloo("rloo_vectorized"),
    "opo": _GROUPED
    | claims(
        "docstring: OPO, arXiv 2505.23585, whose baseline is the length-weighted mean reward of the prompt's responses",
        scope="group",
        credit="outcome",
        baseline="relative",
        algorithm="opo",
    ),
    "gpg": _GROUPED
    | claims(_OUTCOME + "GPG", credit="outcome", algorithm="gpg")
    | claims(
        "arXiv 2504.02546, section 2.2: the gradient is scaled by alpha = B / (B - M), where M of the B responses "
        "belong to groups that are all right or all wrong",
        scope="batch",
    ),
    "gdpo": _GROUPED
    | _ZEROED
    | claims(
        "docstring, arXiv 2601.05242: normalized in each group, added up, then normalized over the batch; outcome-only",
        scope="batch",
        credit="outcome",
        algorithm="gdpo",
    ),
    "remax": claims(
        "docstring: ReMax, arXiv 2310.10505, on one scalar reward for each response; its code sums the rewards from "
        "each token on, minus the reward of the same prompt's greedy response",
        scope="sequence",
        credit="temporal",
        algorithm="remax",
    ),
    "reinforce_plus_plus": claims(
        "docstring: REINFORCE++, arXiv 2501.03262; comment: rewards propagate past observation spans",
        credit="temporal",
        algorithm="reinforce++",
    )
    | claims(_WHITENED, scope="batch"),
    "optimal_token_baseline": _GROUPED | claims(_OTB, scope="group", algorithm="optimal token baseline"),
    "tir_optimal_token_baseline": _GROUPED | claims(_OTB, scope="group", algorithm="optimal token baseline"),
}

#: Estimator -> another estimator that computes the same algorithm.
_ALTERNATIVES = {"grpo_vectorized": "grpo", "rloo_vectorized": "rloo"}

#: A comment that says that returns skip untrained tokens.
_SKIPPED = re.compile(r"#.*(\bskip\b.*observation|observation.*\bskip\b)", re.IGNORECASE)

#: Discounts of the estimators that use them. The trainer also passes ``lam`` to REINFORCE++, which does not use it.
DISCOUNTED: Mapping[str, Settings] = {"gae": {"gamma": 0.9, "lam": 0.95}, "reinforce_plus_plus": {"gamma": 0.9}}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per estimator in the registry, or in the module of releases without a registry."""
    try:
        functions = estimators(target)
    except Unbindable as why:
        for name in estimator_names(target):
            yield Unbound.because(f"{MODULE}.{name}", "advantage", why)
        return
    yield from failed_registrations(target, ESTIMATORS)
    by_name = {name: path_of(function) for name, function in functions.items()}
    for name, function in functions.items():
        try:
            target.source(function)
            yield from bindable(target, _boundary(target, name, function, by_name))
        except Unbindable as why:
            yield Unbound.because(path_of(function), "advantage", why)


def estimators(target: Target) -> dict[str, Callable[..., Any]]:
    """Estimator name -> function: the registry, or the ``compute_*`` functions of a release without one.

    Without a registry, the name lacks prefix and ending: ``compute_grpo_outcome_advantage`` becomes ``grpo``.
    """
    registry = registered(target, ESTIMATORS)
    if registry is not None:
        return registry
    functions = inspect.getmembers(target.module(MODULE), inspect.isfunction)
    return {
        n.removeprefix("compute_").removesuffix("_outcome_advantage").removesuffix("_advantage_return"): f
        for n, f in functions
        if n.startswith("compute_") and n.endswith(ENDINGS)
    }


def estimator_names(target: Target) -> tuple[str, ...]:
    """The functions of the estimators that the source defines; :data:`EVERYWHERE` if it has no such function."""
    old = tuple(name for name in defined_functions(target) if name.startswith("compute_") and name.endswith(ENDINGS))
    return decorated_functions(target, ESTIMATORS) or old or EVERYWHERE


def estimator_claims(name: str, function: Callable[..., Any]) -> Claims:
    """The claims for the name of an estimator, and a claim from its comments, if any; empty for an unknown name."""
    claimed = CLAIMS.get(name, Claims())
    if name not in CLAIMS or not _SKIPPED.search(inspect.getsource(inspect.unwrap(function))):
        return claimed
    return claimed | claims("comment in its code: observation tokens are skipped", untrained="skipped")


def path_of(function: Callable[..., Any]) -> str:
    """The dotted path of a function."""
    return f"{function.__module__}.{function.__qualname__}"


def _boundary(target: Target, name: str, function: Callable[..., Any], by_name: Mapping[str, str]) -> Boundary:
    """The boundary of an estimator, with the arguments that ``compute_advantage`` passes."""
    path = path_of(function)
    claimed = estimator_claims(name, function)
    temporal = value_of(claimed.credit) in (None, "temporal")
    settings = _settings(function, name)
    discounts = {"gamma": Knob("gamma", 1.0), "lam": Knob("lam", 1.0)}
    tuned = {knob: Knob(knob, default=True) for knob in ("norm_adv_by_std_in_grpo",) if "no-std" in settings}
    config = algorithm(target, **discounts, **tuned)
    roles = {**ROLES, "config": config, "gamma": discounts["gamma"], "lambda": discounts["lam"]}
    roles |= {"values": critic_values(target), "standardize": Knob("norm_adv_by_std_in_grpo", default=True)}
    arguments = by_role(function, roles)
    if _takes_extra_arguments(function):
        arguments = {"index": UIDS, "config": config, **arguments}
    return one_call(
        path=path,
        stage="advantage",
        call=path,
        name="result",
        arguments=arguments,
        produced_by={"response_mask": MASK_PRODUCER},
        unused=frozenset() if temporal else frozenset({"token_reward"}),
        outputs=advantage_outputs(Use("result")[0], Use("result")[1]),
        settings=settings,
        claims=claimed,
        alternatives=tuple(by_name[t] for t in (_ALTERNATIVES.get(name, ""),) if t in by_name),
        reach=f"algorithm.adv_estimator={name}",
    )


def _takes_extra_arguments(function: Callable[..., Any]) -> bool:
    """Whether a function takes, as ``**kwargs``, the uids and the configuration that the dispatch passes."""
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(inspect.unwrap(function)).parameters.values())


def _settings(function: Callable[..., Any], name: str) -> Mapping[str, Settings]:
    families: dict[str, Settings] = {"default": {}}
    if takes(function, "standardize") or name == "grpo_passk":
        families["no-std"] = {"norm_adv_by_std_in_grpo": False}
    if name in DISCOUNTED:
        families["discounted"] = DISCOUNTED[name]
    return families


def advantage_outputs(advantage: Use, returns: Use | None) -> dict[str, Output]:
    """The outputs of an estimator: advantages and, if it has any, returns."""
    wide = Cast(Padded(), torch.float32)
    outputs = {"advantage": Output("B T", "reward", "advantage", at=advantage, form=wide)}
    return outputs | ({"returns": Output("B T", "reward", "returns", at=returns, form=wide)} if returns else {})
