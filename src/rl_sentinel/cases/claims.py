"""Every claim that a law or a formula reads: its values, where it says something, and what it says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from rl_sentinel.cases.references import NUMBERS
from rl_sentinel.core.boundary import Claim, Stage
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.formulas.aggregation import MODES
from rl_sentinel.formulas.algorithms import ADVANTAGES, PLAIN
from rl_sentinel.formulas.divergence_losses import DIVERGENCES
from rl_sentinel.formulas.kl_tokens import CONTROLLERS, KL, SHAPED
from rl_sentinel.formulas.kls import KL_LOSSES
from rl_sentinel.formulas.policy_losses import LOSSES
from rl_sentinel.formulas.temporal import TEMPORAL
from rl_sentinel.formulas.token_values import REWARDED, VALUES
from rl_sentinel.formulas.value_losses import VALUE_LOSSES

#: Who says it where a user does.
CITE = "stated on the command line"

#: Stage -> algorithms of which a function can be said to be one, with no more known than its parameters.
ALGORITHMS: Mapping[Stage, tuple[str, ...]] = {
    "advantage": (*ADVANTAGES, *TEMPORAL),
    "policy-loss": tuple(LOSSES),
    "value-loss": tuple(VALUE_LOSSES),
    "aggregate": ("entropy",),
    "kl": tuple(KL),
    "reward": REWARDED,
}

#: Algorithms that need settings, or outputs, which only an adapter gives.
_RECOMPUTED = (*PLAIN, *NUMBERS, *KL_LOSSES, *DIVERGENCES, *SHAPED, *CONTROLLERS)
ADAPTED = (*(n for n in VALUES if n not in REWARDED), *_RECOMPUTED)


@dataclass(frozen=True, slots=True)
class About:
    """What may be claimed under one name; a claim with no ``stages`` is an adapter's to make."""

    values: tuple[str, ...]
    stages: tuple[Stage, ...]
    says: str


_LOSSES: tuple[Stage, ...] = ("policy-loss", "value-loss", "aggregate")
_RELATIVE: tuple[Stage, ...] = ("advantage", "normalise")
_SIGNAL: tuple[Stage, ...] = ("reward", "normalise", "kl", "correct", "advantage", *_LOSSES)
_YES = ("yes",)

#: Name of a claim -> what may be claimed. A name that ends with a colon is followed by a setting's.
CLAIMS: Mapping[str, About] = {
    "algorithm": About(
        tuple(dict.fromkeys((*(n for names in ALGORITHMS.values() for n in names), *ADAPTED))),
        tuple(ALGORITHMS),
        "computes what the paper of this name says",
    ),
    "scope": About(
        ("token", "sequence", "group", "batch"),
        ("advantage", "normalise", "correct", "policy-loss"),
        "how far a row's numbers reach: its token, its row, its prompt's rows, all rows",
    ),
    "baseline": About(("relative",), _RELATIVE, "each outcome is compared with those of its prompt's other rows"),
    "standardised": About(("yes", "no"), _RELATIVE, "divided by a deviation, or not"),
    "deviation": About(("n - 1", "n"), ("advantage",), "what the squares under the deviation's root are divided by"),
    "credit": About(
        ("outcome", "temporal"), ("advantage",), "the outcome credits the whole response, or each token what follows it"
    ),
    "untrained": About(
        ("skipped",), ("advantage",), "credit passes over tokens that do not train as if they were not there"
    ),
    "order-statistic": About(_YES, ("advantage",), "only a few outcomes, such as the best ones, move it"),
    "grouping": About(("id",), (*_SIGNAL,), "rows of a prompt are found by their id, wherever they stand"),
    "ratio": About(_YES, ("policy-loss",), "weighs by the ratio of the current policy to the old one"),
    "on-policy-gradient": About(("other",), ("policy-loss",), "the first step's gradient is meant to be another"),
    "aggregation": About(tuple(MODES), _LOSSES, "how the numbers of tokens become one number"),
    "rows": About(("live", "all"), _LOSSES, "which rows a mean over sequences counts"),
    "factor": About(("half", "the square"), ("value-loss",), "whether half of a square is taken"),
    "gradient": About((*KL, "own"), ("kl",), "has the gradient of this estimator, whatever its values are, or its own"),
    "mean": About(_YES, _LOSSES, "the number is a mean, which twice the batch leaves as it is"),
    "masked": About(_YES, ("reward", "kl", "advantage"), "exactly 0 where nothing is trained"),
    "masked-slots": About(
        ("any",),
        ("kl", "correct", "advantage", "policy-loss", "value-loss", "aggregate"),
        "NaN and infinity may stand where masked",
    ),
    "normaliser": About(("width",), _SIGNAL, "divides by the width of the batch, padding and all"),
    "row-order": About(_YES, _SIGNAL, "the order of rows counts, since some are drawn at random"),
    "state": About(_YES, _SIGNAL, "keeps a state of its own, so that two calls may differ"),
    "denominator": About(("given",), (), "denominators are given from outside, for the whole mini-batch"),
    "weights": About(("constant",), (), "importance weights carry no gradient"),
    "suppresses": About(("unscored",), (), "the reward of a row that is not scored is made void"),
    "trajectories": About(("step-wise",), (), "a trajectory has several rows, one for each step"),
    "conserves": About(_YES, (), "all rows and tokens are handed on"),
    "padding": About(("zero",), (), "0 after the response"),
    "kl": About(tuple(KL), (), "the estimator of the KL that a reward, a loss or a metric is made with"),
    "measure": About((), (), "which mean of a KL a controller is fed with"),
    "corrected-at-most": About(
        (), (), "a loss, or a baseline, is weighed by the ratio to the sampler, held at this number"
    ),
    "corrected-by": About(("token", "row"), (), "that weight is each token's own, or the geometric mean of its row's"),
    "algorithm:": About((), (), "what one output is, where it is not the boundary's algorithm"),
    "definition:": About((), (), "words of the one definition, or reading of a paper, that an output is; `;` between"),
    "pair:": About((), (), "whose log-probs a metric compares with whose"),
    "knob:": About((), (), "a setting that is documented to matter, with two values as JSON, `a|b`"),
    "nonsense:": About((), (), "a setting that must be refused, with the reason"),
    "sound:": About((), (), "a setting at the edge of what is nonsense, which must be accepted, with the reason"),
}


def stated(texts: Iterable[str], stage: Stage) -> dict[str, Claim]:
    """The claims that a user states as ``key=value`` of a function of one stage.

    Raises:
        SentinelError: if a key or a value is none that a law reads there; the nearest is named.

    Example:
        >>> stated(["scope=group"], "advantage")
        {'scope': Claim(value='group', cite='stated on the command line')}
    """
    found: dict[str, Claim] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        here = [k for k, about in CLAIMS.items() if stage in about.stages]
        if not equals:
            known = key if key in here else "algorithm"
            way = f"as in {known}={_values(known, stage)[0]}" if known in here else "of which this stage has none"
            raise SentinelError(f"--claim is {text!r}, expected KEY=VALUE, {way} (docs/claims.md)")
        if key not in here:
            raise SentinelError(f"--claim is {text!r}, of which {_where(key, stage)}: {_nearest(key, here)}")
        values = _values(key, stage)
        if value not in values:
            raise SentinelError(f"--claim is {text!r}, of which {key} has no such value: {_nearest(value, values)}")
        if found.get(key, Claim(value, CITE)).value != value:
            raise SentinelError(f"--claim {key} is {found[key].value!r} and {value!r}, expected one of them")
        found[key] = Claim(value, CITE)
    return found


def _values(key: str, stage: Stage) -> list[str]:
    return list(ALGORITHMS[stage] if key == "algorithm" else CLAIMS[key].values)


def _where(key: str, stage: Stage) -> str:
    if key in CLAIMS:
        return f"no law reads {key} at stage {stage}" if CLAIMS[key].stages else f"{key} is claimed by adapters only"
    return f"{key!r} is no claim"


def _nearest(word: str, words: list[str]) -> str:
    near = get_close_matches(word, words, n=1, cutoff=0.6)
    offered = f"{', '.join(words)} (docs/claims.md)"
    if near:
        return f"the nearest is {near[0]}, of {offered}"
    return f"expected one of {offered}" if words else "there is none here"
