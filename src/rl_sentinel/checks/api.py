"""``check`` and ``assert_sound``: audit your function from a script, a notebook or a test."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rl_sentinel.adapters.live_target import forward_of, path_of
from rl_sentinel.adapters.user_claims import EXAMPLES
from rl_sentinel.adapters.user_function import Statement
from rl_sentinel.audit.findings import LEVELS, findings
from rl_sentinel.audit.function_check import audit_function, why_no_replay
from rl_sentinel.audit.function_results import complete
from rl_sentinel.checks.options import (
    bindings,
    chosen_laws,
    law_codes,
    parsed_claims,
    parsed_numbers,
    validate_search,
    validate_stage,
)
from rl_sentinel.checks.result import CheckFinding, CheckResult
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.errors import InputError
from rl_sentinel.core.phrasing import shortened
from rl_sentinel.report.formatting import one_line

#: Default number of random cases per law; the pytest plugin sets it.
default_budget = [16]

#: Reasons that a message shows, and characters of a reason.
_REASONS, _LONGEST = 3, 600


def check(  # noqa: PLR0913 - the options of a check
    function: Callable[..., Any],
    *,
    stage: str,
    algorithm: str | None = None,
    bind: Mapping[str, Any] | None = None,
    claims: Mapping[str, str | bool | None] | None = None,
    numbers: Mapping[str, float] | None = None,
    laws: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    level: str = "contested",
    seed: int = 0,
    budget: int | None = None,
) -> CheckResult:
    """Check a function against every law that applies to its stage and claims.

    It runs in a forked child of this process, so closures, lambdas, methods, partials and functions of a notebook are
    accepted.

    Args:
        function: the function; it is called by the names of its parameters.
        stage: the quantity that it computes: ``advantage``, ``policy-loss``, ``value-loss``, ``kl``, ``aggregate``,
            ``reward``, ``normalize``, ``weight``, ``keep``, ``logprob`` or ``entropy`` (of logits).
        algorithm: the algorithm that it implements, such as ``grpo``; implies the usual claims of the algorithm.
            Without it, a formula is compared only if the stage or a claim implies one.
        bind: parameter -> column (``"logprob"``), column and axes (``"advantage[B]"``), a dict of these for the keys of
            a dict or the fields of a dataclass, a number, a codec, or a function of the batch. Parameters with known
            names need no binding. ``return`` -> the position or key of the output in the result.
        claims: claim -> value, as in ``{"aggregation": "token-mean"}``; None drops an implied claim.
        numbers: numbers of the formula that are not parameters, as in ``{"clip_low": 0.2, "clip_high": 0.2}``.
        laws: codes or names of the laws to check, at least one; None for all.
        ignore: codes or names of laws to leave out.
        level: show findings of this level and worse: ``fault``, ``contested`` or ``hazard``.
        seed: seed of the random cases.
        budget: random cases per law, at least 2; the default is 16, or the value of pytest's ``--rl-sentinel-budget``.

    Returns:
        The result; ``.ok`` is True if no fault was found, no call failed and at least one law could be checked.

    Raises:
        InputError: if an option is wrong, or a parameter has neither a known name nor a binding.
        SentinelError: if the child process dies.

    Example:
        >>> import rl_sentinel
        >>> def centered(rewards, group):
        ...     same = (group[:, None] == group[None, :]).float()
        ...     return rewards - same @ rewards / same.sum(1)
        >>> result = rl_sentinel.check(centered, stage="advantage", algorithm="grpo", laws=["SHF001"])
        >>> result.ok, result.findings
        (True, ())
    """
    cases = default_budget[0] if budget is None else budget
    function = forward_of(function)
    validate_stage(stage, level)
    validate_search(seed, cases)
    options = {"laws": chosen_laws(laws), "ignore": law_codes("ignore", ignore), "seed": seed, "budget": cases}
    start = time.monotonic()
    statement = Statement(
        stage=stage,
        claims=parsed_claims(stage, algorithm, claims),
        bind=bindings(bind),
        numbers=parsed_numbers(numbers),
    )
    audit = audit_function(function, statement, **options, jobs=1)
    stated = algorithm or value_of(statement.claims.algorithm) or ""
    complete(audit, stated)
    all_findings = findings(audit, (), "")
    visible = [f for f in all_findings if LEVELS.index(f.level) <= LEVELS.index(level)]
    return CheckResult(
        name=path_of(function),
        audit=audit,
        findings=tuple(map(CheckFinding, visible)),
        seconds=time.monotonic() - start,
        no_replay=why_no_replay(function, statement.bind),
        hidden=len(all_findings) - len(visible),
        unclaimed="" if statement.claims.algorithm else EXAMPLES.get(stage, ""),
    )


class UnsoundError(AssertionError):
    """The check found a fault, an error or no law that it could check; ``result`` is its result.

    With ``contested=True``, a contested finding is enough.
    """

    def __init__(self, message: str, result: CheckResult) -> None:
        """Store the report and the result."""
        super().__init__(message)
        self.result = result


def assert_sound(function: Callable[..., Any], *, contested: bool = False, **options: Any) -> CheckResult:  # noqa: ANN401
    """Check a function and raise an error if it has a fault; for tests.

    Args:
        function: the function, as in :func:`check`.
        contested: raise on contested findings as well.
        options: the options of :func:`check`.

    Returns:
        The result of the check.

    Raises:
        UnsoundError: an AssertionError with the report of the findings, or the reasons why laws could not be checked.
        InputError: as for :func:`check`.

    Example:
        >>> import rl_sentinel
        >>> def width(rewards, mask):
        ...     return (rewards / mask.shape[1])[:, None] * mask
        >>> rl_sentinel.assert_sound(width, stage="advantage", laws=["PAD001"])
        Traceback (most recent call last):
        rl_sentinel.checks.api.UnsoundError: ...
    """
    if not isinstance(contested, bool):
        raise InputError(f"contested is {shortened(contested)}, expected True or False")
    result = check(function, **options)
    failing = [f for f in result.findings if f.level == "fault" or (contested and f.level == "contested")]
    if failing:
        notes = "".join(f"\nnote: {note}" for note in result.notes)
        raise UnsoundError("\n\n".join(map(str, failing)) + notes, result)
    if not result.ok:
        raise UnsoundError(f"{result.name}: {_why_not_ok(result)}", result)
    return result


def _why_not_ok(result: CheckResult) -> str:
    """Why a check is not ok: no law was selected, some laws could not be checked, or none applies."""
    laws = {verdict.law for verdict in result.verdicts}
    if not laws:
        return "no law was selected: choose other values for laws and ignore"
    if result.errored:
        failed = {verdict.law for verdict in result.verdicts if verdict.outcome == "errored"}
        return f"{len(failed)} of {len(laws)} laws could not be checked: {_shown(result.errored)}"
    reasons = list(dict.fromkeys(verdict.reason for verdict in result.verdicts))
    return f"none of {len(laws)} laws applies: {_shown(reasons[:_REASONS])}; see result.verdicts of this error"


def _shown(reasons: Sequence[str]) -> str:
    more = [f"and {len(reasons) - _REASONS} more, see result.errored of this error"] if len(reasons) > _REASONS else []
    return "; ".join([*(one_line(reason, _LONGEST) for reason in reasons[:_REASONS]), *more])
