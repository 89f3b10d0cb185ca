"""Boundaries in a few lines, for the sound, broken and refusing specimen of each law."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.batch_steps import batch_step, by_name
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.engine.judge import Judgment, search, smallest
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Stage
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claim_text import claims_from_text
from rl_sentinel.core.law import Law
from rl_sentinel.core.layout import Axis

#: Random cases that a specimen is tried on, besides all small ones.
BUDGET = 24


def specimen(  # noqa: PLR0913 - a boundary has these parts
    compute: Callable[..., Mapping[str, Tensor] | Tensor],
    *,
    reads: str,
    stage: Stage = "advantage",
    outputs: Mapping[str, Output] | None = None,
    claims: Mapping[str, str] | None = None,
    path: str = "specimen",
    follows: frozenset[Axis] = frozenset(),
    **more: Any,
) -> Boundary:
    """A boundary whose ``compute(batch, **settings)`` gives tensors, or one advantage ``[B, T]``."""
    declared = outputs or {"advantage": Output("B T", "reward", "advantage")}

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        result = compute(batch, **settings)
        return {next(iter(declared)): result} if isinstance(result, Tensor) else result

    return Boundary(
        path=path,
        stage=stage,
        steps=(batch_step(call, frozenset(reads.split()), follows),),
        outputs=by_name(declared),
        claims=claims_from_text(claims or {}, "specimen"),
        **more,
    )


def judged(law: Law, boundary: Boundary, *twins: Boundary, seed: int = 0, gate: Target | None = None) -> Judgment:
    """Search a law on a specimen (and its twins) of the target ``gate``, the break shrunk."""
    ask = Asker(boundary, {t.path: t for t in twins}, gate=gate)
    reason = law.applies(boundary)
    if reason:
        return Judgment(0, None, reason)
    judgement = search(law, ask, "default", seed=seed, budget=BUDGET)
    if judgement.found is None:
        return judgement
    return Judgment(judgement.tried, smallest(law, ask, judgement.found))
