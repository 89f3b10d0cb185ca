"""Claims that a user states on the command line, checked against the stage of the function."""

from collections.abc import Iterable, Mapping

from rl_sentinel.core.boundary import Stage
from rl_sentinel.core.claims import IMPLIED, STATED, Claims, claims_from_text, described, nearest
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.formulas.algorithms import ADVANTAGES, PLAIN
from rl_sentinel.formulas.divergence_losses import DIVERGENCES
from rl_sentinel.formulas.kl_tokens import CONTROLLERS, KL, SHAPED
from rl_sentinel.formulas.kls import KL_LOSSES
from rl_sentinel.formulas.policy_losses import LOSSES
from rl_sentinel.formulas.temporal import TEMPORAL
from rl_sentinel.formulas.token_values import REWARDED, VALUES
from rl_sentinel.formulas.value_losses import VALUE_LOSSES
from rl_sentinel.search.claimed_formulas import NUMBERS

#: The value by which text drops a claim that an algorithm implies.
DROPPED = "none"

#: The page that lists all claims.
PAGE = "docs/claims.md"

#: Stage -> algorithms of which a function can be said to be one, with no more known than its parameters.
ALGORITHMS: Mapping[Stage, tuple[str, ...]] = {
    "advantage": (*ADVANTAGES, *TEMPORAL),
    "policy-loss": tuple(LOSSES),
    "value-loss": tuple(VALUE_LOSSES),
    "aggregate": ("entropy",),
    "kl": tuple(KL),
    "reward": REWARDED,
}

#: Stage -> an algorithm of it, for hints; other stages have none that a user can state.
EXAMPLES: Mapping[str, str] = {"advantage": "grpo", "policy-loss": "grpo", "value-loss": "ppo", "kl": "k3"}

#: Algorithms that need settings, or outputs, which only an adapter gives.
_RECOMPUTED = (*PLAIN, *NUMBERS, *KL_LOSSES, *DIVERGENCES, *SHAPED, *CONTROLLERS)
ADAPTED = (*(n for n in VALUES if n not in REWARDED), *_RECOMPUTED)


#: Names of algorithms in other spellings, or under the name of the method -> stage -> name here and further claims.
ALIASES: Mapping[str, Mapping[Stage, tuple[str, Mapping[str, str]]]] = {
    "grpo": {"policy-loss": ("ppo", {})},
    "dr_grpo": {"advantage": ("grpo", {"standardised": "no"}), "policy-loss": ("ppo", {})},
    "dr. grpo": {"advantage": ("grpo", {"standardised": "no"}), "policy-loss": ("ppo", {})},
    "dapo": {"advantage": ("grpo", {}), "policy-loss": ("ppo", {"aggregation": "token-mean"})},
    "ppo": {"advantage": ("gae", {}), "value-loss": ("clipped value", {})},
    "rloo": {"policy-loss": ("reinforce", {})},
}

_COMPARED = {"scope": "group", "baseline": "relative", "credit": "outcome", "grouping": "id"}
_BY_RATIO = {"ratio": "yes", "aggregation": "any"}

#: Stage -> algorithm -> the claims that go without saying.
USUAL: Mapping[Stage, Mapping[str, Mapping[str, str]]] = {
    "advantage": {
        **dict.fromkeys(("grpo", "rloo", "opo", "maxrl"), _COMPARED),
        "remax": {"scope": "sequence", "credit": "outcome"},
        "outcome": {"scope": "sequence", "credit": "outcome"},
        "gae": {"credit": "temporal"},
        "reinforce++": {"credit": "temporal"},
    },
    "policy-loss": {
        **dict.fromkeys(("ppo", "dual clip", "cispo", "gspo", "sapo", "gmpo", "importance sampling"), _BY_RATIO),
        **{key: {"aggregation": "any"} for key in ("reinforce", "negative log-likelihood")},
    },
    "value-loss": {key: {"aggregation": "any"} for key in ("clipped value", "squared value")},
}


def claims_of(stage: Stage, algorithm: str, claims: Mapping[str, str | bool | None]) -> Claims:
    """The claims of a function: those that its algorithm implies, and those that the user states, which win.

    Args:
        stage: the stage of the function.
        algorithm: the name of its algorithm, or of the method that it is part of; empty for none.
        claims: claim to value; True and False are yes and no, and None drops what is implied.

    Raises:
        SentinelError: as :func:`stated`.

    Example:
        >>> from rl_sentinel.adapters.user_claims import claims_of
        >>> claims_of("advantage", "grpo", {"scope": "batch"}).scope.value
        'batch'
    """
    words = {True: "yes", False: "no"}
    texts = [
        f"{key}={DROPPED if value is None else words[value] if isinstance(value, bool) else value}"
        for key, value in claims.items()
    ]
    return claims_from_options(stage, algorithm, texts)


def claims_from_options(stage: Stage, algorithm: str, texts: Iterable[str]) -> Claims:
    """As :func:`claims_of`, with claims as ``key=value``; ``key=none`` drops what the algorithm implies.

    Raises:
        SentinelError: as :func:`stated`.
    """
    name, more = ALIASES.get(algorithm.lower(), {}).get(stage, (algorithm, {}))
    said = list(texts)
    keys = [text.partition("=")[0] for text in said]
    usual = {**USUAL.get(stage, {}).get(name, {}), **more}
    implied = {key: value for key, value in usual.items() if key not in keys}
    dropped = {text for text in said if text.partition("=")[2] == DROPPED and text.partition("=")[0] in _keys(stage)}
    kept = [*([f"algorithm={name}"] if name else []), *(text for text in said if text not in dropped)]
    return claims_from_text(implied, f"{IMPLIED}{name}") | stated(kept, stage)


def stated(texts: Iterable[str], stage: Stage) -> Claims:
    """The claims that a user states as ``key=value`` of a function of one stage.

    Raises:
        SentinelError: if no law reads the key at this stage, or the value is not one that the claim can have; the
            nearest is named.

    Example:
        >>> from rl_sentinel.adapters.user_claims import stated
        >>> stated(["scope=group"], "advantage").scope
        Said(value='group', cite='stated by the user')
    """
    values: dict[str, str] = {}
    here = _keys(stage)
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            example = key if key in here else "algorithm"
            way = f", as in {example}={_values(example, stage)[0]}" if example in here else ""
            raise SentinelError(f"--claim is {text!r}, expected KEY=VALUE{way} ({PAGE})")
        if key not in here:
            raise SentinelError(f"--claim is {text!r}, but {_reason(key, stage)}: {nearest(key, here)} ({PAGE})")
        allowed = _values(key, stage)
        if value not in allowed:
            raise SentinelError(
                f"--claim is {text!r}, which stage {stage} does not have: {nearest(value, allowed)} ({PAGE})"
            )
        if values.get(key, value) != value:
            raise SentinelError(f"--claim {key} is {values[key]!r} and {value!r}, expected one value")
        values[key] = value
    return claims_from_text(values, STATED)


def _keys(stage: Stage) -> list[str]:
    """The claims that a user may state at a stage."""
    return [key for key, (_, stages, _says) in described().items() if stage in stages]


def _values(key: str, stage: Stage) -> list[str]:
    return list(ALGORITHMS[stage] if key == "algorithm" else described()[key][0])


def _reason(key: str, stage: Stage) -> str:
    known = described()
    if key not in known:
        return f"claim {key!r} does not exist"
    return f"no law reads {key} at stage {stage}" if known[key][1] else f"only adapters can claim {key}"
