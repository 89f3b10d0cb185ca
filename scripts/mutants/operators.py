"""The table of operators: what may be changed in an expression or a statement."""

import ast
from collections.abc import Callable, Iterator, Mapping

Operator = Callable[[ast.AST], Iterator[ast.AST]]

_COMPARED: Mapping[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}

_COMPUTED: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}

#: Name of a function or method -> what is called instead.
_NAMED: Mapping[str, str] = {
    "minimum": "maximum",
    "maximum": "minimum",
    "amax": "amin",
    "amin": "amax",
    "max": "min",
    "min": "max",
    "argmax": "argmin",
    "argmin": "argmax",
    "sum": "mean",
    "mean": "sum",
    "any": "all",
    "all": "any",
    "exp": "expm1",
    "expm1": "exp",
    "square": "abs",
    "abs": "square",
    "sqrt": "square",
    "log": "log1p",
    "zeros_like": "ones_like",
    "ones_like": "zeros_like",
    "row_sums": "row_means",
    "row_means": "row_sums",
    "group_sums": "group_maxima",
    "deviations": "group_maxima",
}

#: Methods that a value is handed on without.
_DROPPED = frozenset(
    {"abs", "all", "any", "clamp", "cumsum", "detach", "exp", "flip", "masked_fill", "neg", "sqrt", "square", "tanh"}
)

#: Keywords that hold a mask: dropped, a statistic is taken over everything.
_MASKS = frozenset({"mask", "live"})

#: Checks of kinds and shapes alone, which ones in the place of a mask keep: they read no number of it.
_OF_SHAPES = frozenset({"checked", "kinds"})

_AXES = frozenset({"dim", "axis"})

#: Functions of two that give the same with the two exchanged, by definition: no fault can be made so.
_SYMMETRIC = frozenset({"equal", "fmax", "fmin", "logaddexp", "max", "maximum", "min", "minimum", "promote_types"})

#: Functions whose first two arguments are left where they are: exchanged bounds are of ``bound``, and what is filled
#: with a tensor has no shape.
_KEPT_IN_ORDER = _SYMMETRIC | {"clamp", "full_like"}


def comparison(node: ast.AST) -> Iterator[ast.AST]:
    """``<`` to ``<=`` and to ``>``; ``==`` to ``!=``."""
    if isinstance(node, ast.Compare):
        for at, old in enumerate(node.ops):
            for new in _COMPARED.get(type(old), ()):
                ops = [new() if i == at else o for i, o in enumerate(node.ops)]
                yield ast.Compare(node.left, ops, node.comparators)


def arithmetic(node: ast.AST) -> Iterator[ast.AST]:
    """``+`` and ``-``, ``*`` and ``/``, ``&`` and ``|`` for each other."""
    if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        yield ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)


def term(node: ast.AST) -> Iterator[ast.AST]:
    """One side of an arithmetic expression, the other dropped."""
    if isinstance(node, ast.BinOp):
        yield node.left
        yield node.right


def logic(node: ast.AST) -> Iterator[ast.AST]:
    """``and`` and ``or`` for each other."""
    if isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)


def sign(node: ast.AST) -> Iterator[ast.AST]:
    """A minus, a ``not`` or a ``~`` dropped."""
    if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield node.operand


def constant(node: ast.AST) -> Iterator[ast.AST]:
    """A number by one more and by 0; True and False for each other."""
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield from (ast.Constant(x) for x in sorted({value + 1, 0} - {value}))


def function(node: ast.AST) -> Iterator[ast.AST]:
    """Another function of the same shape: minimum for maximum, sum for mean."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _NAMED:
        yield ast.Constant(_NAMED[node.value])
    if not isinstance(node, ast.Call):
        return
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in _NAMED:
        yield ast.Call(ast.Attribute(called.value, _NAMED[called.attr], ast.Load()), node.args, node.keywords)
    if isinstance(called, ast.Name) and called.id in _NAMED:
        yield ast.Call(ast.Name(_NAMED[called.id], ast.Load()), node.args, node.keywords)


def method(node: ast.AST) -> Iterator[ast.AST]:
    """A method not called: no detach, no clamp, no absolute value."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DROPPED:
        yield node.func.value


def selection(node: ast.AST) -> Iterator[ast.AST]:
    """``where(mask, x, y)`` as ``x``, as ``y``, and with the two exchanged."""
    if isinstance(node, ast.Call) and _last_name(node.func) == "where" and len(node.args) == 3:
        mask, one, other = node.args
        yield one
        yield other
        yield ast.Call(node.func, [mask, other, one], node.keywords)
    if isinstance(node, ast.Call) and _last_name(node.func) == "selected" and node.args:
        yield node.args[0]


def bound(node: ast.AST) -> Iterator[ast.AST]:
    """The bounds of a clamp exchanged, or one of them dropped."""
    if not (isinstance(node, ast.Call) and _last_name(node.func) == "clamp"):
        return
    if len(node.args) == 2:
        low, high = node.args
        yield ast.Call(node.func, [high, low], [])
        yield ast.Call(node.func, [], [ast.keyword("min", low)])
        yield ast.Call(node.func, [], [ast.keyword("max", high)])
    flipped = {"min": "max", "max": "min"}
    for at, one in enumerate(node.keywords):
        if one.arg in flipped:
            others = [ast.keyword(flipped[one.arg], one.value) if i == at else k for i, k in enumerate(node.keywords)]
            yield ast.Call(node.func, node.args, others)


def population(node: ast.AST) -> Iterator[ast.AST]:
    """A statistic of live rows or trained tokens taken of all; a weight left out."""
    if not isinstance(node, ast.Call) or _last_name(node.func) in _OF_SHAPES:
        return
    for at, one in enumerate(node.keywords):
        if one.arg in _MASKS:
            everything = ast.Call(
                ast.Attribute(ast.Name("torch", ast.Load()), "ones_like", ast.Load()), [one.value], []
            )
            changed = ast.keyword(one.arg, everything)
            yield ast.Call(node.func, node.args, [changed if i == at else k for i, k in enumerate(node.keywords)])
        if one.arg == "weight":
            yield ast.Call(node.func, node.args, [k for i, k in enumerate(node.keywords) if i != at])


def axis(node: ast.AST) -> Iterator[ast.AST]:
    """A reduction over all axes instead of one; ``keepdim`` turned round."""
    if not isinstance(node, ast.Call):
        return
    for at, one in enumerate(node.keywords):
        others = [k for i, k in enumerate(node.keywords) if i != at]
        if one.arg in _AXES:
            yield ast.Call(node.func, node.args, others)
        if one.arg == "keepdim":
            yield ast.Call(node.func, node.args, [*others, ast.keyword("keepdim", ast.Constant(value=False))])


def order(node: ast.AST) -> Iterator[ast.AST]:
    """The first two arguments exchanged, where that may make a difference."""
    if isinstance(node, ast.Call) and len(node.args) == 2 and _last_name(node.func) not in _KEPT_IN_ORDER:
        yield ast.Call(node.func, [node.args[1], node.args[0]], node.keywords)


def choice(node: ast.AST) -> Iterator[ast.AST]:
    """The other branch of a condition; a condition that never holds, or always."""
    if isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
        yield node.body
    if isinstance(node, ast.If):
        yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        yield ast.If(ast.Constant(value=False), node.body, node.orelse)


def statement(node: ast.AST) -> Iterator[ast.AST]:
    """A call for its effect, or an assignment into a tensor, left out."""
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    written = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
    if called or written or isinstance(node, ast.AugAssign):
        yield ast.Pass()


def result(node: ast.AST) -> Iterator[ast.AST]:
    """The returned value with its sign turned, doubled, or moved by one."""
    if isinstance(node, ast.Return) and node.value is not None:
        value = node.value
        yield ast.Return(ast.UnaryOp(ast.USub(), value))
        yield ast.Return(ast.BinOp(value, ast.Mult(), ast.Constant(2)))
        yield ast.Return(ast.BinOp(value, ast.Add(), ast.Constant(1)))


def _last_name(called: ast.AST) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


OPERATORS: Mapping[str, Operator] = {
    o.__name__: o
    for o in (
        comparison,
        arithmetic,
        term,
        logic,
        sign,
        constant,
        function,
        method,
        selection,
        bound,
        population,
        axis,
        order,
        choice,
        statement,
        result,
    )
}
