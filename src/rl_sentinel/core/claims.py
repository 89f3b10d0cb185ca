"""Claims: documented properties of a boundary, each with a citation; they decide which laws apply."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any, Generic, Literal, TypeVar, get_args, get_type_hints

from rl_sentinel.core.case import Scalar
from rl_sentinel.core.phrasing import nearest, shortened

T_co = TypeVar("T_co", covariant=True)

Scope = Literal["token", "sequence", "group", "batch"]
KlEstimator = Literal["k1", "abs", "k2", "k3"]
Aggregation = Literal[
    "token-mean",
    "token-sum",
    "sequence-mean-token-sum",
    "sequence-mean-token-mean",
    "sequence-mean-token-sum-by-width",
    "prompt-mean",
    "token-sum-by-constant",
    "any",
]

#: The citation of claims that a user states about a function.
STATED = "stated by the user"

#: Start of the citation if the user calls the algorithm by another name, such as that of the method; the name follows.
STATED_AS = f"{STATED} as "

#: Start of the citation of claims that are implied by the stated algorithm.
IMPLIED = "implied by algorithm="


@dataclass(frozen=True, slots=True)
class Said(Generic[T_co]):
    """A claimed value and its citation: the line of the target's code or documentation that states it."""

    value: T_co
    cite: str


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting and two of its values, with which the results must differ or, in ``Claims.inert``, be equal."""

    name: str
    values: tuple[Scalar, Scalar]
    cite: str


@dataclass(frozen=True, slots=True)
class Options:
    """A setting with the values that the target lists as allowed."""

    name: str
    values: tuple[Scalar, ...]
    cite: str


@dataclass(frozen=True, slots=True)
class SettingClaim:
    """A setting that the boundary must refuse or must accept, and the reason."""

    name: str
    reason: str
    cite: str


def value_of(said: Said[T_co] | None) -> T_co | None:
    """The claimed value, or None if there is no claim.

    Example:
        >>> from rl_sentinel.core.claims import Claims, Said, value_of
        >>> value_of(Claims(scope=Said("group", "docstring")).scope), value_of(Claims().scope)
        ('group', None)
    """
    return None if said is None else said.value


def _claim(says: str, *stages: str) -> Any:  # noqa: ANN401 - a field default of any claim type
    """A field for a claim. ``says`` is its meaning; a user may state the claim at the stages in ``stages``."""
    return field(default=None, metadata={"says": says, "stages": stages})


def _per_name(says: str, default: type) -> Any:  # noqa: ANN401 - a field default of any claim type
    return field(default_factory=default, metadata={"says": says, "stages": ()})


_LOSSES = ("policy-loss", "value-loss", "aggregate")
_RELATIVE = ("advantage", "normalize")
_SIGNAL = ("reward", "normalize", "kl", "correct", "advantage", *_LOSSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """All claims of one boundary; None (or empty) means that a claim was not made.

    ``a | b`` has the claims of both; if both make the same claim, ``b`` wins. The fields ``output_*`` hold claims per
    output; ``knobs``, ``inert``, ``options``, ``refused`` and ``accepted`` hold claims per setting.

    Raises:
        ValueError: if a claim has a value that is not possible.
    """

    algorithm: Said[str] | None = _claim(
        "implements the algorithm of this name, as its paper defines it",
        *("advantage", "policy-loss", "value-loss", "aggregate", "kl", "reward"),
    )
    scope: Said[Scope] | None = _claim(
        "which rows may influence a row's numbers: only its own token, its own row, its prompt's rows, or all rows",
        *("advantage", "normalize", "correct", "policy-loss"),
    )
    baseline: Said[Literal["relative"]] | None = _claim(
        "each outcome is compared with the outcomes of the same prompt's other rows", *_RELATIVE
    )
    standardized: Said[bool] | None = _claim("rewards are divided by a standard deviation, or not", *_RELATIVE)
    deviation: Said[Literal["n - 1", "n"]] | None = _claim("the denominator of the standard deviation", "advantage")
    deviation_of: Said[Literal["group", "batch"]] | None = _claim(
        "whose standard deviation divides a reward that is compared within its prompt; `batch` implies scope `batch`",
        "advantage",
    )
    credit: Said[Literal["outcome", "temporal"]] | None = _claim(
        "the outcome credits all tokens of the response equally, or each token by later rewards", "advantage"
    )
    untrained: Said[Literal["skipped"]] | None = _claim(
        "credit skips tokens that are not trained, as if they were absent", "advantage"
    )
    order_statistic: Said[Literal[True]] | None = _claim(
        "only a few outcomes, such as the best ones, have an influence", "advantage"
    )
    pairing: Said[Literal["adjacent"]] | None = _claim(
        "row 2i is the preferred response of a pair, row 2i + 1 the other one"
    )
    grouping: Said[Literal["id"]] | None = _claim("rows of a prompt are found by id, wherever they are", *_SIGNAL)
    ratio: Said[Literal[True]] | None = _claim("uses the ratio of the current policy to the old one", "policy-loss")
    on_policy_gradient: Said[Literal["other"]] | None = _claim(
        "the gradient of the first step deliberately differs from the policy gradient", "policy-loss"
    )
    aggregation: Said[Aggregation] | None = _claim(
        "how token losses are reduced to one number; `token-sum-by-constant`: their sum, divided by 1, the rows, the "
        "width or a fixed length, never by a response's own length; `any`: any of these",
        *_LOSSES,
    )
    rows: Said[Literal["live", "all"]] | None = _claim("which rows a mean over sequences counts", *_LOSSES)
    factor: Said[Literal["half", "the square"]] | None = _claim(
        "whether the squared error is multiplied by one half", "value-loss"
    )
    gradient: Said[Literal["k1", "abs", "k2", "k3", "own"]] | None = _claim(
        "has the gradient of this KL estimator regardless of its value, or the gradient of its own value", "kl"
    )
    mean: Said[Literal[True]] | None = _claim("is a mean, so that repeating the batch leaves it unchanged", *_LOSSES)
    masked: Said[Literal[True]] | None = _claim("exactly 0 at untrained positions", "reward", "kl", "advantage")
    masked_slots: Said[Literal["any"]] | None = _claim(
        "masked positions may contain NaN and infinity",
        *("kl", "correct", "advantage", *_LOSSES),
    )
    normalizer: Said[Literal["width"]] | None = _claim("divides by the width of the batch, padding included", *_SIGNAL)
    row_order: Said[Literal[True]] | None = _claim(
        "the result depends on the order of rows, because some rows are drawn at random", *_SIGNAL
    )
    state: Said[Literal[True]] | None = _claim("keeps state between calls, so two calls may differ", *_SIGNAL)
    denominator: Said[Literal["given"]] | None = _claim(
        "denominators are arguments, computed over the whole mini-batch"
    )
    weights: Said[Literal["constant"]] | None = _claim("importance weights carry no gradient")
    suppresses: Said[Literal["unscored"]] | None = _claim("replaces the reward of a row that is not scored")
    trajectories: Said[Literal["step-wise"]] | None = _claim("a trajectory has several rows, one for each step")
    conserves: Said[Literal[True]] | None = _claim("keeps all rows and tokens")
    packs: Said[Literal[True]] | None = _claim(
        "packs several sequences into one, without effect of one sequence on another"
    )
    padding: Said[Literal["zero"]] | None = _claim("0 after the end of the response")
    kl: Said[KlEstimator] | None = _claim(
        "the KL estimator that a reward, a loss or a metric uses", "policy-loss", "reward"
    )
    measure: Said[str] | None = _claim("which mean of the KL a controller reads")
    corrected_at_most: Said[float] | None = _claim(
        "a loss or a baseline is weighted by the ratio to the rollout policy, clamped at this number"
    )
    corrected_by: Said[Literal["token", "row"]] | None = _claim(
        "the weight of corrected-at-most: each token's clamped ratio, or the geometric mean of the row's clamped ratios"
    )
    output_algorithms: Mapping[str, Said[str]] = _per_name(
        "the algorithm of one output, if it differs from the boundary's", dict
    )
    output_definitions: Mapping[str, Said[str]] = _per_name(
        "name of the definition that an output follows, or parts of the name, separated by `; `", dict
    )
    output_pairs: Mapping[str, Said[str]] = _per_name("which two sets of log-probs a metric compares", dict)
    knobs: tuple[Knob, ...] = _per_name("a setting that is documented to have an effect; two JSON values, `a|b`", tuple)
    inert: tuple[Knob, ...] = _per_name(
        "a setting that is documented to change only speed or memory; two JSON values, `a|b`", tuple
    )
    options: tuple[Options, ...] = _per_name(
        "the values of a setting that are listed as allowed; JSON values, `a|b|c`", tuple
    )
    refused: tuple[SettingClaim, ...] = _per_name("a setting that must be refused, and why", tuple)
    accepted: tuple[SettingClaim, ...] = _per_name(
        "a setting just within the limits, which must be accepted, and why", tuple
    )

    def __post_init__(self) -> None:
        """Check each value against the type of its claim."""
        for name, kind in KINDS.items():
            said = getattr(self, name)
            if said is not None and not _fits(said.value, kind):
                raise ValueError(_wrong_value(name, said.value, kind))

    def __or__(self, other: "Claims") -> "Claims":
        """The claims of both; ``other`` wins if both make the same claim."""
        merged = {f.name: _merge(getattr(self, f.name), getattr(other, f.name)) for f in fields(Claims)}
        return Claims(**merged)


def claims(cite: str, **values: object) -> Claims:
    """Make claims that share one citation.

    Args:
        cite: the line of the target's code or documentation.
        values: claim to value. ``output_*`` map outputs to values, ``knobs`` and ``inert`` settings to pairs of
            values, ``options`` settings to all listed values, ``refused`` and ``accepted`` settings to reasons.

    Raises:
        ValueError: if a claim does not exist, or a value is not possible.

    Example:
        >>> from rl_sentinel.core.claims import claims
        >>> claims("grpo.py: docstring", scope="group").scope
        Said(value='group', cite='grpo.py: docstring')
        >>> claims("grpo.py: docstring", skope="group")
        Traceback (most recent call last):
        ValueError: claim 'skope' does not exist: the nearest is 'scope'
    """
    claimed: dict[str, Any] = {}
    for name, value in values.items():
        if name in KINDS:
            claimed[name] = Said(value, cite)
        elif name not in PER_NAME:
            raise ValueError(unknown_claim(name))
        elif not isinstance(value, Mapping):
            message = f"claim {name} is {shortened(value)}, expected a mapping from names to values"
            raise ValueError(message)
        elif name in OF_SETTINGS:
            claimed[name] = tuple(Knob(n, (first, second), cite) for n, (first, second) in value.items())
        elif name == "options":
            claimed[name] = tuple(Options(n, tuple(listed), cite) for n, listed in value.items())
        elif name in ("refused", "accepted"):
            claimed[name] = tuple(SettingClaim(n, str(reason), cite) for n, reason in value.items())
        else:
            claimed[name] = {n: Said(x, cite) for n, x in value.items()}
    return Claims(**claimed)


def unknown_claim(name: str) -> str:
    """The error message for a claim that does not exist."""
    return f"claim {name!r} does not exist: {nearest(name, NAMES)}"


def _value_kinds(hint: object) -> tuple[object, ...]:
    """The possible values of a claim: literals or, if any value of a type is possible, that type."""
    said = next(part for part in get_args(hint) if part is not NoneType)
    (value,) = get_args(said)
    return (True, False) if value is bool else get_args(value) or (value,)


def _fits(value: object, kinds: tuple[object, ...]) -> bool:
    return any(isinstance(value, k) if isinstance(k, type) else (type(value), value) == (type(k), k) for k in kinds)


def _wrong_value(name: str, value: object, kinds: tuple[object, ...]) -> str:
    if isinstance(kinds[0], type):
        return f"claim {name} is {shortened(value)}, expected a {kinds[0].__name__}"
    return f"claim {name} is {shortened(value)}: {nearest(str(value), map(str, kinds))}"


def _merge(first: Any, second: Any) -> Any:  # noqa: ANN401 - a field of any claim type
    if isinstance(first, Mapping):
        return {**first, **second}
    if isinstance(first, tuple):
        replaced = {claim.name for claim in second}
        return (*(claim for claim in first if claim.name not in replaced), *second)
    return first if second is None else second


#: Claims about a setting with two values.
OF_SETTINGS = ("knobs", "inert")

#: Claims that are made per output or per setting.
PER_NAME = ("output_algorithms", "output_definitions", "output_pairs", *OF_SETTINGS, "options", "refused", "accepted")

#: Names of all claims.
NAMES: tuple[str, ...] = tuple(f.name for f in fields(Claims))

#: Claim with one value -> its possible values or types.
KINDS: Mapping[str, tuple[object, ...]] = {
    name: _value_kinds(hint) for name, hint in get_type_hints(Claims).items() if name not in PER_NAME
}
