"""Parse the claims that a user states about a function, and add those that its algorithm implies."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rl_sentinel.core.boundary import Stage
from rl_sentinel.core.claim_text import claims_from_text, described
from rl_sentinel.core.claims import IMPLIED, STATED, STATED_AS, Claims
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import nearest
from rl_sentinel.formulas.algorithms import ADVANTAGES, PLAIN
from rl_sentinel.formulas.divergence_losses import DIVERGENCES
from rl_sentinel.formulas.kl_terms import KL_LOSSES
from rl_sentinel.formulas.kl_tokens import CONTROLLERS, KL, SHAPED
from rl_sentinel.formulas.policy_losses import LOSSES
from rl_sentinel.formulas.temporal import TEMPORAL
from rl_sentinel.formulas.token_values import REWARDED, VALUES
from rl_sentinel.formulas.value_losses import VALUE_LOSSES
from rl_sentinel.search.claimed_formulas import NUMBERS

#: Value that removes a claim that the algorithm implies.
DROPPED = "none"

#: Value of a claim that leaves open which value it has.
OPEN = "any"

#: A statistic over all rows.
BATCH = "batch"

#: Page that lists all claims.
PAGE = "docs/claims.md"

#: Stage -> algorithms that a user can claim for a function; its parameters are enough to compute the formula.
ALGORITHMS: Mapping[Stage, tuple[str, ...]] = {
    "advantage": (*ADVANTAGES, *TEMPORAL),
    "policy-loss": tuple(LOSSES),
    "value-loss": tuple(VALUE_LOSSES),
    "aggregate": ("entropy",),
    "kl": tuple(KL),
    "reward": REWARDED,
}

#: Stage -> an example of an algorithm, for hints.
EXAMPLES: Mapping[str, str] = {"advantage": "grpo", "policy-loss": "grpo", "value-loss": "ppo", "kl": "k3"}

#: Algorithms that only an adapter can claim, because they need its settings or outputs.
_RECOMPUTED = (*PLAIN, *NUMBERS, *KL_LOSSES, *DIVERGENCES, *SHAPED, *CONTROLLERS)
ADAPTED = (*(n for n in VALUES if n not in REWARDED), *_RECOMPUTED)


#: Other spelling, or name of the whole method -> stage -> the name used here and further claims.
ALIASES: Mapping[str, Mapping[Stage, tuple[str, Mapping[str, str]]]] = {
    "grpo": {"policy-loss": ("ppo", {})},
    "dr_grpo": {
        "advantage": ("grpo", {"standardized": "no"}),
        "policy-loss": ("ppo", {"aggregation": "token-sum-by-constant"}),
    },
    "dapo": {"advantage": ("grpo", {}), "policy-loss": ("ppo", {"aggregation": "token-mean"})},
    "ppo": {"advantage": ("gae", {}), "value-loss": ("ppo value", {})},
    "rloo": {"policy-loss": ("reinforce", {})},
}

_COMPARED = {"scope": "group", "baseline": "relative", "credit": "outcome", "grouping": "id"}
_BY_RATIO = {"ratio": "yes", "aggregation": "any"}

#: Stage -> algorithm -> the claims that it implies.
USUAL: Mapping[Stage, Mapping[str, Mapping[str, str]]] = {
    "advantage": {
        **dict.fromkeys(("grpo", "rloo", "opo"), _COMPARED),
        "maxrl": {
            "scope": "group",
            "grouping": "id",
        },  # it divides by the mean, so the zero of rewards matters
        "remax": {"scope": "sequence", "credit": "outcome"},
        "outcome": {"scope": "sequence", "credit": "outcome"},
        "gae": {"credit": "temporal"},
        "reinforce++": {"credit": "temporal"},
    },
    "policy-loss": {
        **dict.fromkeys(
            ("ppo", "dual clip", "cispo", "gspo", "sequence ppo", "sapo", "gmpo", "importance sampling"), _BY_RATIO
        ),
        **{key: {"aggregation": "any"} for key in ("reinforce", "negative log-likelihood")},
    },
    "value-loss": {key: {"aggregation": "any"} for key in VALUE_LOSSES},
    "aggregate": {"entropy": {"aggregation": "any"}},
}


def claims_of(stage: Stage, algorithm: str, claims: Mapping[str, str | bool | None]) -> Claims:
    """The claims about a function: those that its algorithm implies, overridden by those that the user states.

    Args:
        stage: the stage of the function.
        algorithm: name of its algorithm, or of the method that it is part of; may be empty.
        claims: claim -> value; True and False mean yes and no. None removes an implied claim, or sets it to ``any`` if
            the claim can have this value.

    Raises:
        SentinelError: as :func:`claims_from_options`.

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
    """Like :func:`claims_of`, for claims as texts ``key=value``; ``key=none`` stands for None.

    Raises:
        SentinelError: if the algorithm does not exist at this stage, or as :func:`parse_claims`.
    """
    texts = list(texts)
    spelt, name, more = _named(algorithm, stage)
    known = known_algorithms(stage)
    if name and not known:
        raise SentinelError(
            f"--algorithm is {algorithm!r}, but stage {stage} has no named algorithms: drop the algorithm"
        )
    if "aggregation" in _keys(stage) and name in _values("aggregation", stage):
        raise SentinelError(
            f"--algorithm is {algorithm!r}, a value of the claim aggregation, not an algorithm: claim "
            f"aggregation={name} ({PAGE})"
        )
    if name and name not in known:
        raise SentinelError(
            f"--algorithm is {algorithm!r}, which does not exist at stage {stage}: {nearest(name, known)} ({PAGE})"
        )
    keys = [text.partition("=")[0] for text in texts]
    usual = _usual(stage, name, more, of_batch=f"deviation-of={BATCH}" in texts)
    implied = {key: value for key, value in usual.items() if key not in keys}
    dropped = {text for text in texts if text.partition("=")[2] == DROPPED and text.partition("=")[0] in _keys(stage)}
    unstated = {text.partition("=")[0] for text in dropped} & set(usual)
    # Without any aggregation, no loss has a formula: not stated is not the same as none.
    implied |= {key: OPEN for key in unstated if OPEN in _values(key, stage)}
    stated = [*([f"algorithm={name}"] if name else []), *(text for text in texts if text not in dropped)]
    claimed = claims_from_text(implied, f"{IMPLIED}{name}") | parse_claims(stated, stage)
    if claimed.algorithm and spelt in ALIASES:
        claimed = replace(claimed, algorithm=replace(claimed.algorithm, cite=f"{STATED_AS}{spelt}"))
    return claimed


def with_implied(stage: Stage, algorithm: str, more: Mapping[str, str], stated: Mapping[str, str]) -> dict[str, str]:
    """The claims that an algorithm and its method (``more``) imply, overridden by those stated; ``none`` drops one.

    Example:
        >>> from rl_sentinel.adapters.user_claims import with_implied
        >>> with_implied("advantage", "grpo", {}, {"deviation-of": "batch", "credit": "none"})["scope"]
        'batch'
    """
    usual = _usual(stage, algorithm, more, of_batch=stated.get("deviation-of") == BATCH)
    return {key: value for key, value in {**usual, **stated}.items() if value != DROPPED}


def _usual(stage: Stage, algorithm: str, more: Mapping[str, str], *, of_batch: bool) -> dict[str, str]:
    """The claims that an algorithm implies; ``of_batch``, a standard deviation over the batch, makes that the scope."""
    usual = {**USUAL.get(stage, {}).get(algorithm, {}), **more}
    return usual | {"scope": BATCH} if of_batch else usual


def known_algorithms(stage: Stage) -> list[str]:
    """The algorithms that a user can claim for a function of a stage."""
    return _values("algorithm", stage) if "algorithm" in _keys(stage) else []


def algorithm_of(name: str, stage: Stage) -> tuple[str, Mapping[str, str]]:
    """The algorithm of a stage that a name stands for, and further claims; an empty name if no algorithm fits.

    The name may be spelled in another way, or be that of a whole method.

    Example:
        >>> from rl_sentinel.adapters.user_claims import algorithm_of
        >>> algorithm_of("Dr. GRPO", "advantage")
        ('grpo', {'standardized': 'no'})
        >>> algorithm_of("gae", "policy-loss")
        ('', {})
    """
    _, found, more = _named(name, stage)
    return (found, more) if found in known_algorithms(stage) else ("", {})


def names_method(name: str, stage: Stage) -> bool:
    """Whether a name is that of a whole method, and stands for one of its algorithms at this stage.

    Example:
        >>> from rl_sentinel.adapters.user_claims import names_method
        >>> names_method("RLOO", "policy-loss"), names_method("RLOO", "advantage")
        (True, False)
    """
    return stage in ALIASES.get(_named(name, stage)[0], {})


def _named(algorithm: str, stage: Stage) -> tuple[str, str, Mapping[str, str]]:
    """The usual spelling of an algorithm or method, the algorithm that it stands for at a stage, and further claims."""
    known = known_algorithms(stage)
    spelt = {_spelling(one): one for one in (*known, *ALIASES)}.get(_spelling(algorithm), algorithm)
    name, more = ALIASES.get(spelt, {}).get(stage, (spelt, {}))
    return spelt, name, more


def _spelling(name: str) -> str:
    """The name of an algorithm in lower case, without spaces, hyphens, underscores and dots."""
    return re.sub(r"[\s_.-]", "", name.lower())


def parse_claims(texts: Iterable[str], stage: Stage) -> Claims:
    """Parse claims ``key=value`` about a function of one stage.

    Raises:
        SentinelError: if a text has no ``=``, if no law reads the claim at this stage, if the value is not allowed, or
            if a claim has two values; for an unknown claim or value, the message suggests the nearest name.

    Example:
        >>> from rl_sentinel.adapters.user_claims import parse_claims
        >>> parse_claims(["scope=group"], "advantage").scope
        Said(value='group', cite='stated by the user')
    """
    values: dict[str, str] = {}
    keys = _keys(stage)
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            example = key if key in keys else "algorithm"
            hint = f", for example {example}={_values(example, stage)[0]}" if example in keys else ""
            raise SentinelError(f"--claim is {text!r}, expected KEY=VALUE{hint} ({PAGE})")
        if key not in keys:
            raise SentinelError(f"--claim is {text!r}, but {_reason(key, stage)}: {nearest(key, keys)} ({PAGE})")
        allowed = _values(key, stage)
        value = value if value in allowed else value.replace("seq-", "sequence-")  # verl's spelling
        if value not in allowed:
            at = f" at stage {stage}" if key == "algorithm" else ""
            raise SentinelError(
                f"--claim is {text!r}, but {key} has no value {value!r}{at}: {nearest(value, allowed)} ({PAGE})"
            )
        if values.get(key, value) != value:
            raise SentinelError(
                f"--claim {key} is {values[key]!r} and {value!r}, expected one value: drop one of the two"
            )
        values[key] = value
    return claims_from_text(values, STATED)


def _keys(stage: Stage) -> list[str]:
    """The keys of the claims that a user can state at a stage."""
    return [key for key, (_, stages, _says) in described().items() if stage in stages]


def _values(key: str, stage: Stage) -> list[str]:
    return list(ALGORITHMS[stage] if key == "algorithm" else described()[key][0])


def _reason(key: str, stage: Stage) -> str:
    known = described()
    if key not in known:
        return f"claim {key!r} does not exist"
    return f"no law reads {key} at stage {stage}" if known[key][1] else f"only adapters can claim {key}"
