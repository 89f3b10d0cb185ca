"""Choose the cases on which a law is tried, and their order: all cases with a budget, else the leading cases first.

The leading cases are the first small case of each kind, and a few random cases.
"""

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from rl_sentinel.core.case import Case
from rl_sentinel.core.law import Law
from rl_sentinel.search.companion_cases import Domain, inside_domain
from rl_sentinel.search.many_prompts import many_prompts, one_success
from rl_sentinel.search.random_cases import random_cases
from rl_sentinel.search.small_cases import small_cases, small_kinds

#: Seed of the random cases that every audit tries before the cases of its own seed.
FIXED_SEED = 17

#: Number of small cases of each kind that are tried under every variant of a law if all cases are tried.
FULLY_VARIED = 2

#: Leading random cases: their indices among those of ``FIXED_SEED``, and the number drawn from the audit's own seed.
LEADING_FIXED, LEADING_DRAWN = (1, 4, 0, 2, 3, 5), 2

#: A boundary that enters more functions of the target than this is a long run, tried on fewer leading cases.
LONG_RUN = 40


class Share(NamedTuple):
    """A part of the leading cases: kinds of small cases, and a number of random cases."""

    kinds: tuple[str, ...]
    random: int


#: What a long run is tried on.
OF_LONG_RUNS = Share(
    (
        "_plain",
        "_of_equal_groups",
        "_of_unequal_groups",
        "_with_dead_rows",
        "_with_masked_tokens",
        "_with_suppressed_rewards",
        "_with_equal_rewards",
        "_of_one_position",
        "_step_wise",
        "_of_several_steps",
        "_step_wise_without_its_end",
    ),
    3,
)

#: What a law with ``few_cases`` is tried on.
OF_FEW_CASES = Share(
    (
        "_plain",
        "_of_unequal_groups",
        "_with_dead_rows",
        "_with_masked_tokens",
        "_with_suppressed_rewards",
        "_step_wise",
        "_of_several_steps",
    ),
    1,
)

#: The kinds of leading cases that are tried under every variant of a law.
VARIED_KINDS = ("_of_unequal_groups", "_with_dead_rows", "_step_wise", "_of_several_steps")

#: Number of leading cases that must fulfil a law's precondition; with fewer, other cases are tried until so many do.
ENOUGH = 3


class Selection(NamedTuple):
    """Cases in the order in which they are tried, without a setting; the first ``leading`` cases are always tried."""

    cases: tuple[Case, ...]
    leading: int

    def is_enough(self, number: int, tried: int) -> bool:
        """Whether case ``number`` can be left out, given that ``tried`` cases fulfilled the law's precondition."""
        return number >= self.leading and tried >= ENOUGH


def selection(law: Law, seed: int, budget: int, domain: Domain = None, *, long_run: bool = False) -> Selection:
    """The cases of a law, within a boundary's ``domain``; with a budget all cases, else the leading cases first."""
    share = OF_FEW_CASES if law.few_cases else OF_LONG_RUNS if long_run else None
    return _selection(law, seed, budget, domain, None if budget else share)


@cache
def _selection(law: Law, seed: int, budget: int, domain: Domain, share: Share | None) -> Selection:
    if budget:
        everything = _everything(law, all_cases(seed, budget), domain)
        return Selection(everything, len(everything))
    small, random, reserve = _leading(seed, share)
    first = [variant for kind, case in small for variant in _leading_variants(law, kind, case, domain)]
    first += _in_turn(law, random, domain)
    return Selection((*first, *_in_turn(law, reserve, domain)), len(first))


@cache
def all_cases(seed: int, budget: int) -> tuple[Case, ...]:
    """Small cases, ``budget`` random cases (a few if it is 0), a case of many prompts, and a case with an outlier."""
    if not budget:
        small, random, reserve = _leading(seed)
        return (*(case for _, case in small), *random, *reserve)
    half = budget // 2
    fixed = small_cases() + random_cases(FIXED_SEED, half)
    return (*fixed, *random_cases(seed + 1000, budget - half), many_prompts(), one_success())


def leading_cases(setting: str) -> list[Case]:
    """The leading cases under a setting, except the cases that depend on the seed of the audit."""
    small, random, _ = _leading(0)
    cases = [*(case for _, case in small), *random[: len(LEADING_FIXED)]]
    return [replace(case, setting=setting) for case in cases]


@cache
def _leading(
    seed: int, share: Share | None = None
) -> tuple[tuple[tuple[str, Case], ...], tuple[Case, ...], tuple[Case, ...]]:
    """Three parts: the first small case of each kind, with the kind; the leading random cases; all other cases.

    With a ``share``, the first two parts have only its cases.
    """
    leading, others = dict[str, Case](), list[Case]()
    for kind, case in zip(small_kinds(), small_cases(), strict=True):
        if kind in leading or (share and kind not in share.kinds):
            others.append(case)
        else:
            leading[kind] = case
    fixed = random_cases(FIXED_SEED, len(LEADING_FIXED))
    drawn = (*(fixed[n] for n in LEADING_FIXED), *random_cases(seed + 1000, LEADING_DRAWN))
    most = share.random if share else len(drawn)
    return tuple(leading.items()), drawn[:most], (*others, *drawn[most:], many_prompts(), one_success())


def _leading_variants(law: Law, kind: str, base: Case, domain: Domain) -> list[Case]:
    variants = _variants(law, base, domain)
    return variants if kind in VARIED_KINDS else variants[:1]


def _everything(law: Law, bases: tuple[Case, ...], domain: Domain) -> tuple[Case, ...]:
    """All cases: the first fitting small cases of each kind with every variant of the law, others with one variant."""
    kinds, number_of, chosen = small_kinds(), Counter[str](), list[Case]()
    for number, base in enumerate(bases):
        variants = _variants(law, base, domain)
        kind = kinds[number] if variants and number < len(kinds) else ""
        number_of[kind] += 1
        chosen += variants if kind and number_of[kind] <= FULLY_VARIED else _one_of(variants, number)
    return tuple(chosen)


def _in_turn(law: Law, bases: tuple[Case, ...], domain: Domain) -> list[Case]:
    """Each case with one variant of the law; the variants take turns.

    The second variant is used first, because the small leading cases have the first variant.
    """
    return [case for n, base in enumerate(bases) for case in _one_of(_variants(law, base, domain), n + 1)]


def _variants(law: Law, base: Case, domain: Domain) -> list[Case]:
    case = inside_domain(domain, base)
    return [variant for v in range(law.variants) if (variant := law.vary(case, v)) is not None]


def _one_of(variants: list[Case], number: int) -> list[Case]:
    return variants[number % max(1, len(variants)) :][:1]
