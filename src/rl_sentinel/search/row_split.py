"""Split a batch into parts: expectations that the loss and its gradient do not depend on the split."""

from collections.abc import Iterator
from typing import Literal

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw, with_layout
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Change, Equal, Expectation
from rl_sentinel.core.observation import Ask, Observation
from rl_sentinel.formulas.policy_losses import OF_BATCHES
from rl_sentinel.search.comparison import magnitude, slopes

Cut = Literal["micro_batches", "ranks"]

#: Aggregations whose mean over parts of equal size equals the aggregation of the whole batch.
MEANS = ("token-mean", "sequence-mean-token-mean", "sequence-mean-token-sum")

#: What the parts are called in a sentence.
PART_NAMES: dict[Cut, str] = {"micro_batches": "micro-batches", "ranks": "ranks"}


def applies_to_split(boundary: Boundary, cut: Cut, otherwise: str) -> str:
    """The reason why a boundary's loss cannot be compared in parts; empty if it can.

    The reason is ``otherwise`` if the adapter cannot split rows.
    """
    if value_of(boundary.claims.denominator) != "given":
        return "the boundary does not claim that denominators are arguments"
    if cut not in boundary.axes:
        return otherwise
    return "" if "loss" in boundary.outputs else "the boundary has no loss"


def averages(boundary: Boundary) -> bool:
    """Whether a loss is a mean: then the mean over parts of equal size equals the mean over the whole batch."""
    if value_of(boundary.claims.algorithm) in OF_BATCHES:
        return False
    is_mean = (value_of(boundary.claims.aggregation) or "") in MEANS and boundary.claims.row_order is None
    return is_mean and value_of(boundary.claims.denominator) != "given" and "loss" in boundary.outputs


def alike(batch: Batch) -> bool:
    """Whether all rows have the same number of trained tokens, so that means weight all parts equally."""
    return bool(batch.live.all()) and len(set(batch.mask.sum(1).tolist())) == 1


def several_rows(case: Case, variant: int) -> Case | None:
    """A variant of a case with several rows and a trained token."""
    several = case.batch.rows > 1 and bool(case.batch.live.any())
    return with_draw(case, variant=variant) if several else None


def in_parts(case: Case, cut: Cut, parts: int) -> Case:
    """The case with its rows split into a number of parts."""
    return with_layout(case, micro_batches=parts) if cut == "micro_batches" else with_layout(case, ranks=parts)


def cutting(case: Case, cut: Cut, parts: int) -> Change:
    """The change of a case by the split, as the subject of a sentence."""
    return Change(f"splitting {case.batch.rows} rows into {parts} {PART_NAMES[cut]}")


def same_loss_in_parts(ask: Ask, case: Case, cut: Cut, reason: str) -> Iterator[Expectation]:
    """Expectations that two parts, or one per row or pair, give the same loss and gradient as the whole batch.

    For a mean, only parts of equal weight are compared.
    """

    def observe(parts: int) -> Observation:
        return ask(in_parts(case, cut, parts), gradients=slopes(ask.boundary))

    rows, is_mean = case.batch.rows, averages(ask.boundary)
    if is_mean and not alike(case.batch):
        return
    whole, scale = observe(1), magnitude(case.batch, ask.boundary.reads)
    units = rows if ask.boundary.claims.pairing is None else rows // 2
    for parts in sorted({2, units} - {0, 1} if units < rows else {2, rows}):
        if is_mean and rows % parts:
            continue
        split, change = observe(parts), cutting(case, cut, parts)
        for column, gradient in whole.gradients.items():
            name = f"gradient of {column}"
            yield Equal(name, gradient, split.gradients[column], None, scale, change=change, reason=reason)
        yield Equal("loss", whole.values["loss"], split.values["loss"], None, scale, change=change, reason=reason)
