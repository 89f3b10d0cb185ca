"""The table of operators for a framework's own path: faults that have been made in trainers, each at one place."""

import ast
import re
from collections.abc import Iterator, Mapping

from mutants.frameworks.expressions import (
    call_method,
    is_named,
    is_text,
    last_name,
    ones_like,
    replaced,
    signed,
    whole_number,
)
from mutants.operators import Operator

_MASK = re.compile(r"(\w+_)?(masks?|keep|kept|valid|live|padding)(_\w+)?")

#: Columns that lie beside each other token by token, so that one may be off by a place.
_COLUMN = re.compile(r"(\w+_)?(log_?probs?|logps?|advantages?|values?|vpreds|returns|masks?|(is_)?weights?|log_ratio)")

#: What a gradient flows from; log-probs of earlier or other policies carry none.
_LEAF = re.compile(
    r"((new|cur|curr|current|per_token|policy|actor)_)?(log_?probs?|logps?|values?|vpreds|logits|entropy)"
)

#: A count that all micro-batches or ranks share, and a factor that makes up for how a batch was divided.
_COUNT = re.compile(r"\w*(batch|global|num|count|denom|total|normali[sz])\w*|n_\w+")
_SHARE = re.compile(r"\w*(accum|dp_size|world_size|scale|num_micro|n_micro)\w*")

_STATISTICS = frozenset({"mean", "sum", "std", "var"})
_LIBRARIES = frozenset({"torch", "np", "numpy"})


def mask_dropped(node: ast.AST) -> Iterator[ast.AST]:
    """A mask is not applied: ``x * mask``, ``where(mask, x, 0)``, ``masked_mean(x, mask)`` or ``x[mask]`` of all x."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for side, other in ((node.left, node.right), (node.right, node.left)):
            if is_named(_MASK, side) and not is_named(_MASK, other):
                yield other
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult) and is_named(_MASK, node.value):
        yield ast.Pass()
    if isinstance(node, ast.Subscript) and is_named(_MASK, node.slice) and isinstance(node.ctx, ast.Load):
        yield node.value
    if isinstance(node, ast.Call):
        yield from _without_mask(node)


def mean_over_all(node: ast.AST) -> Iterator[ast.AST]:
    """A statistic over all entries instead of the masked ones, of a row or of a group."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        of, by = _summed(node.left), _summed(node.right)
        if of is not None and by is not None:
            yield call_method(of, "mean")
    if not isinstance(node, ast.Call):
        return
    name = last_name(node.func)
    if name == "masked_mean" and node.args:
        yield call_method(node.args[0], "mean")
    if name in _STATISTICS and _is_method(node.func) and _has_axis(node):
        yield ast.Call(node.func, [], [k for k in node.keywords if k.arg not in {"dim", "axis", "keepdim"}])


def shift_by_one(node: ast.AST) -> Iterator[ast.AST]:
    """A column one place off: a slice one later or earlier, a column rolled by one, or a 1 that is not subtracted."""
    if isinstance(node, ast.Slice) and node.step is None:
        yield from _shifted(node)
    if isinstance(node, ast.Call) and last_name(node.func) == "roll" and node.args:
        yield node.func.value if isinstance(node.func, ast.Attribute) and _is_method(node.func) else node.args[0]
    if not isinstance(node, ast.BinOp):
        return
    columns = is_named(_COLUMN, node.left) and is_named(_COLUMN, node.right)
    if columns and isinstance(node.op, ast.Sub | ast.Mult):
        yield ast.BinOp(node.left, node.op, call_method(node.right, "roll", ast.Constant(1), signed(-1)))
    if isinstance(node.op, ast.Sub) and whole_number(node.right) == 1:
        yield node.left


def sign(node: ast.AST) -> Iterator[ast.AST]:
    """A minus dropped, or a difference taken the other way round."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield node.operand
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and not whole_number(node.right):
        yield ast.BinOp(node.right, ast.Sub(), node.left)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub) and not whole_number(node.value):
        yield ast.AugAssign(node.target, ast.Add(), node.value)


def detach(node: ast.AST) -> Iterator[ast.AST]:
    """A stop of gradients left out, or one put where the loss has its gradient from."""
    if isinstance(node, ast.BinOp):
        if is_named(_LEAF, node.left):
            yield ast.BinOp(call_method(node.left, "detach"), node.op, node.right)
        if is_named(_LEAF, node.right):
            yield ast.BinOp(node.left, node.op, call_method(node.right, "detach"))
    if isinstance(node, ast.Call) and last_name(node.func) == "detach" and isinstance(node.func, ast.Attribute):
        yield node.func.value
    if isinstance(node, ast.Call) and last_name(node.func) in {"exp", "log_softmax"}:
        yield call_method(node, "detach")


def denominator(node: ast.AST) -> Iterator[ast.AST]:
    """The micro-batch's own count where the batch's was handed in, a count of all places, or a share left out."""
    if isinstance(node, ast.If) and _is_missing_count(node.test) and not node.orelse:
        yield ast.If(ast.Constant(value=True), node.body, [])
    if isinstance(node, ast.AugAssign) and _shares(node.op, node.value):
        yield ast.Pass()
    if not isinstance(node, ast.BinOp):
        return
    if _shares(node.op, node.right):
        yield node.left
    if isinstance(node.op, ast.Mult) and is_named(_SHARE, node.left):
        yield node.right
    masked = _summed(node.right) if isinstance(node.op, ast.Div) else None
    if masked is not None and is_named(_MASK, masked):
        yield ast.BinOp(node.left, node.op, replaced(node.right, masked, ones_like(masked)))


def wrong_key(node: ast.AST) -> Iterator[ast.AST]:
    """Two neighbors of a dictionary logged or handed on under each other's key."""
    if not isinstance(node, ast.Dict):
        return
    for at, (key, following) in enumerate(zip(node.keys, node.keys[1:], strict=False)):
        if is_text(key) and is_text(following):
            values = [*node.values[:at], node.values[at + 1], node.values[at], *node.values[at + 2 :]]
            yield ast.Dict(node.keys, values)


def _without_mask(node: ast.Call) -> Iterator[ast.AST]:
    """A selection, a fill or a masked statistic without its mask."""
    name = last_name(node.func)
    if name == "where" and len(node.args) == 3 and is_named(_MASK, node.args[0]):
        yield node.args[1]
    if name in {"masked_fill", "masked_fill_"} and isinstance(node.func, ast.Attribute):
        yield node.func.value
    if not name.startswith("masked_") or "fill" in name:
        return
    for at, value in enumerate(node.args):
        if at and is_named(_MASK, value):
            yield ast.Call(node.func, [*node.args[:at], ones_like(value), *node.args[at + 1 :]], node.keywords)
    for at, one in enumerate(node.keywords):
        if one.arg and _MASK.fullmatch(one.arg):
            changed = ast.keyword(one.arg, ones_like(one.value))
            yield ast.Call(node.func, node.args, [*node.keywords[:at], changed, *node.keywords[at + 1 :]])


def _shifted(node: ast.Slice) -> Iterator[ast.AST]:
    """A slice of the other end, or of as many places one earlier or later."""
    low, high = whole_number(node.lower), whole_number(node.upper)
    if (low, node.upper) == (1, None):
        yield ast.Slice(None, signed(-1))
    if (node.lower, high) == (None, -1):
        yield ast.Slice(ast.Constant(1), None)
    if high == -1 and node.lower is not None:
        yield ast.Slice(ast.BinOp(node.lower, ast.Add(), ast.Constant(1)), None)
    if isinstance(node.lower, ast.UnaryOp) and node.upper is None and low is None:
        yield ast.Slice(ast.BinOp(node.lower, ast.Sub(), ast.Constant(1)), signed(-1))


def _summed(node: ast.AST) -> ast.expr | None:
    """What ``x.sum(...)`` or ``(x * mask).sum(...)`` sums, also below a bound or a small number added."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _summed(node.left)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return None
    if node.func.attr in {"clamp", "clamp_min"}:
        return _summed(node.func.value)
    if node.func.attr != "sum" or not _is_method(node.func):
        return None
    of = node.func.value
    masked = isinstance(of, ast.BinOp) and isinstance(of.op, ast.Mult) and is_named(_MASK, of.right)
    return of.left if masked and isinstance(of, ast.BinOp) else of


def _is_method(called: ast.expr) -> bool:
    """Whether it is called on a value, not as a function of a library."""
    return isinstance(called, ast.Attribute) and last_name(called.value) not in _LIBRARIES


def _has_axis(node: ast.Call) -> bool:
    by_place = bool(node.args) and isinstance(node.args[0], ast.Constant | ast.UnaryOp)
    return by_place or any(k.arg in {"dim", "axis"} for k in node.keywords)


def _is_missing_count(test: ast.expr) -> bool:
    """``count is None``."""
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) and is_named(_COUNT, test.left)):
        return False
    return isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None


def _shares(operation: ast.operator, by: ast.expr) -> bool:
    """Whether a number is divided by a count, or multiplied or divided by a share."""
    if isinstance(operation, ast.Div) and is_named(_COUNT, by):
        return True
    return isinstance(operation, ast.Mult | ast.Div) and is_named(_SHARE, by)


PATH_OPERATORS: Mapping[str, Operator] = {
    o.__name__: o for o in (mask_dropped, mean_over_all, shift_by_one, sign, detach, denominator, wrong_key)
}
