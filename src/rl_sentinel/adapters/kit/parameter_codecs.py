"""Choose the codec of one parameter, field of a dataclass or key of a dict: by its binding, annotation and name."""

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rl_sentinel.adapters.kit.annotated_axes import axes_of
from rl_sentinel.adapters.kit.bind_text import BINDINGS, DTYPES, codec_of, column_of
from rl_sentinel.adapters.kit.containers import Namespace, Object, Table
from rl_sentinel.adapters.kit.function_arguments import Arguments, Attributes, Slot
from rl_sentinel.adapters.kit.logit_names import TOKEN_NAMES, bindings_of_logits, bindings_of_marked_tokens
from rl_sentinel.adapters.kit.numbers import DISCOUNTS, NUMBERS, OPTIONAL_PARTS, formula_names, numbers_of
from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.adapters.kit.roles import parameters_of, role_inside, role_of, roles_of
from rl_sentinel.adapters.kit.row_table import RowTable, listed
from rl_sentinel.adapters.kit.user_layouts import function_codec
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.core.boundary import Stage
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.search.small_cases import small_cases

#: Parameter names under which frameworks pass labels as numpy arrays of strings.
LABELS = ("index", "uid", "uids")

#: Parameter names of models and token ids, for losses that call a model -> binding.
MODEL_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("model", "policy", "actor"), "model"),
    **{name: name for name in ("input_ids", "attention_mask", "labels", "completion_ids", "prompt_ids", "prompt_mask")},
}

#: A parameter of this name holds one prompt id per response, unless another parameter is a model or its tokens.
_PROMPT_LABELS = "prompt_ids"


#: Columns whose axes are found by trial if they are not stated.
OPEN_COLUMNS = frozenset(
    {"reward", "token_rewards", "mask", "group", "advantage", "value", "old_value", "returns", "logprob"}
    | {"old_logprob", "ref_logprob", "rollout_logprob", "reward_baseline", "logits", "token"}
)


def has_tokens(names: Iterable[str]) -> bool:
    """Whether one of the names stands for a model or for its tokens; ``prompt_ids`` alone are labels."""
    return any(name in MODEL_NAMES for name in names if name != _PROMPT_LABELS)


def bind_slots(
    slots: Sequence[Slot], bind: Mapping[str, Any], arguments: Arguments, holder: str = ""
) -> dict[str, Codec]:
    """The codec of each slot that has a binding, a known name, or a dataclass as its annotation.

    Adds numbers, unknown slots and open axes to ``arguments``. Other slots keep their defaults; without one they are
    unknown.

    Args:
        slots: the parameters of a function, the fields of a dataclass, or the keys of a dict or an object.
        bind: name of a slot -> what the user binds; ``...`` means the codec of its name.
        arguments: the arguments of the function.
        holder: path of the argument that holds the slots, such as ``batch``; empty for parameters.
    """
    renamed = {name: text for name, text in bind.items() if _names_a_number(text)}
    stated = {name: value for name, value in bind.items() if name not in renamed}
    roles = _roles(slots, arguments.stage, holder)
    usual = {n: value for n, value in _usual_bindings(slots, roles, arguments).items() if n not in renamed}
    bound = usual | {n: value for n, value in stated.items() if value is not ...}
    passed = _numbers_to_pass(slots, bound, renamed, stated, arguments)
    roles |= {name: role_of(text) for name, text in renamed.items()}
    codecs = dict[str, Codec]()
    for slot in slots:
        path, role = _path(holder, slot.name), roles.get(slot.name, "")
        codec: Codec | None
        if slot.name in bound:
            codec = _from_binding(bound[slot.name], slot, role, path, arguments)
        elif slot.required and slot.dataclass:
            codec = _dataclass_object(slot.dataclass, {}, path, arguments)
        elif slot.required and slot.item_class:
            codec = _row_table({}, slot, path, arguments)
        elif slot.name in passed:
            codec = Constant(passed[slot.name])
        else:
            codec = _by_name(slot, role, path, arguments)
        if codec is not None:
            codecs[slot.name] = codec
        elif slot.required and slot.name not in renamed:
            arguments.unknown.append(path)
            arguments.attributes |= {path} if isinstance(bind, Attributes) else set()
    return codecs


def _path(holder: str, name: str) -> str:
    return f"{holder}.{name}" if holder else name


def _roles(slots: Sequence[Slot], stage: Stage, holder: str) -> dict[str, str]:
    """Name of a slot -> role, also by the name of the holder, as in ``reference.logprobs``.

    At stage ``batch``, all names of tokens have the role of tokens.
    """
    names, outer = [slot.name for slot in slots], holder.rpartition(".")[2]
    roles = roles_of(names) | {name: role for name in names if (role := role_inside(outer, name))}
    return roles | ({name: "token" for name in names if name in TOKEN_NAMES} if stage == "batch" else {})


def _usual_bindings(slots: Sequence[Slot], roles: Mapping[str, str], arguments: Arguments) -> dict[str, str]:
    """Bindings of names whose meaning depends on the other names.

    These are prompt ids and, in a loss, also logits, tokens and a KL.
    """
    of_labels = not arguments.of_model and not has_tokens(slot.name for slot in slots)
    labels = {slot.name: "group" for slot in slots if of_labels and slot.name == _PROMPT_LABELS}
    if arguments.stage != "policy-loss":
        return labels
    names, untrained = [slot.name for slot in slots if slot.required], arguments.untrained
    tokens = bindings_of_logits(roles, names, untrained)
    if not tokens and "logits" not in arguments.present:  # beside a model, they are of whole sequences
        tokens = bindings_of_marked_tokens(roles, [name for name in names if name not in MODEL_NAMES], untrained)
    return tokens | {name: "kl_k3" for name in names if roles.get(name) == "kl"} | labels


def _numbers_to_pass(
    slots: Sequence[Slot],
    bound: Mapping[str, Any],
    renamed: Mapping[str, str],
    stated: Collection[str],
    arguments: Arguments,
) -> dict[str, float]:
    """Name of a slot -> the number to pass; adds the numbers by their names in formulas to ``arguments``.

    Args:
        slots: the slots.
        bound: name of a slot -> its binding.
        renamed: name of a slot -> the known name of its number, where the user binds one.
        stated: the slots that the user binds; their defaults are kept.
        arguments: the arguments of the function.

    Raises:
        Unbindable: if a bound number is NaN.
    """
    numbers = {name: x for name, x in bound.items() if isinstance(x, int | float) and not isinstance(x, bool)}
    if nan := [name for name, x in numbers.items() if x != x]:  # noqa: PLR0124 - NaN
        raise Unbindable(f"bind[{nan[0]}] is nan, expected a number")
    open_slots = [slot for slot in slots if slot.name in numbers or slot.name not in bound]
    values = {slot.name: numbers.get(slot.name, slot.default) for slot in open_slots}
    known = {name: renamed.get(name, name) for name in values}
    changeable = _changeable(slots, {*stated, *arguments.kept}, arguments.present)
    of_formula, passed = numbers_of({known[name]: x for name, x in values.items()}, arguments.stage, changeable)
    exact = {role_of(name): float(x) for name, x in numbers.items() if role_of(name) in (*DISCOUNTS, "temperature")}
    arguments.numbers |= of_formula | exact
    return {name: passed[known[name]] for name in values if known[name] in passed}


def _changeable(slots: Sequence[Slot], stated: Collection[str], present: frozenset[str]) -> list[str]:
    """The parameters whose default may be replaced.

    The user does not state them, and the part of the formula in which they occur is compared.
    """
    roles = {*roles_of([slot.name for slot in slots]).values(), *present}
    parts = {**OPTIONAL_PARTS, **dict.fromkeys(("clip", "clip_low", "clip_high"), "advantage"), "temperature": "logits"}
    open_slots = [slot.name for slot in slots if not {slot.name, *formula_names(role_of(slot.name))} & set(stated)]
    return [name for name in open_slots if parts.get(role_of(name)) in roles]


def _names_a_number(value: object) -> bool:
    """Whether a binding is the known name of a number, such as ``clip_range``."""
    return isinstance(value, str) and column_of(value) == value and role_of(value) in (*DISCOUNTS, *NUMBERS)


def _from_binding(
    value: Any,  # noqa: ANN401 - any value that the user binds
    slot: Slot,
    role: str,
    path: str,
    arguments: Arguments,
) -> Codec:
    """The codec of a slot with this binding: a codec, a text, a dict, a list of one dict, a function, or a constant."""
    if isinstance(value, Codec):
        return value
    if isinstance(value, str):
        return _from_text(value, slot, role, path, arguments)
    if isinstance(value, Mapping) and slot.item_class is None:
        return _container(value, slot, path, arguments)
    items = [value] if isinstance(value, Mapping) else value
    if isinstance(items, list) and len(items) == 1 and isinstance(items[0], Mapping):
        return _row_table(items[0], slot, path, arguments)
    if callable(value):
        return function_codec(value, small_cases("default")[0].batch, f"the function bind[{path}]")
    return Constant(value)


def _from_text(text: str, slot: Slot, role: str, path: str, arguments: Arguments) -> Codec:
    """The codec of a binding such as ``advantage[B]``; axes that it does not state are those of the annotation."""
    axes = "" if "[" in text else _axes(slot, text, path, arguments)
    if axes:
        text = f"{text}[{axes}]"
    if axes_of(slot.annotation) == "list":
        text = text.replace("[K]", "[K list]")
    array = _is_array(slot, "" if DTYPES.keys() & text.split()[-1:] else role)
    return codec_of(text, ROLES[role].column if role else "", array=array, path=path)


def _by_name(slot: Slot, role: str, path: str, arguments: Arguments) -> Codec | None:
    """The codec for a known name, with stated axes; None for an unknown name, and for a slot that keeps its default."""
    if role in DISCOUNTS:
        return _discount(slot, role, arguments)
    if role == "accumulation":  # with 1 micro-batch, a loss that is divided by their number has its formula
        return Constant(1)
    column = _column_by_name(slot, role, arguments)
    if not column:
        return None
    if column == "lengths" and "." not in path:  # an item has its own length
        if slot.annotation in (int, "int"):
            return codec_of("width")
        arguments.open_axes[path] = column
    axes = _axes(slot, column, path, arguments)
    if column == "reward" and axes == "N" and "cumulative_lengths" in arguments.present:  # of all tokens
        column = arguments.open_axes[path] = "token_rewards"
    return codec_of(f"{column}[{axes}]" if axes else column, array=_is_array(slot, role))


def _discount(slot: Slot, role: str, arguments: Arguments) -> Codec | None:
    """A discount below 1 if the default is missing or 1; None if the slot keeps its default."""
    default = slot.default
    if slot.required or (default == 1 and role not in arguments.kept):
        arguments.numbers[role] = DISCOUNTS[role]
        return Constant(DISCOUNTS[role])
    arguments.numbers[role] = (
        float(default) if isinstance(default, int | float) and not isinstance(default, bool) else 1.0
    )
    return None


def _column_by_name(slot: Slot, role: str, arguments: Arguments) -> str:
    """The column (or other word of a binding) that the name of a slot stands for; otherwise empty."""
    # a kl may be the name of an estimator, a weight, or a switch
    if role == "kl" and isinstance(slot.default, str | int | float):
        return ""
    # ids need a size that fits the largest of them
    if role == "prompt_count" and "group" in arguments.present:
        return ""
    column = BINDINGS.get(role) or (ROLES[role].column if role and role != "pi_squared" else "")
    return column or (MODEL_NAMES.get(slot.name, "") if slot.required else "")


def _axes(slot: Slot, column: str, path: str, arguments: Arguments) -> str:
    """The axes in the annotation of a slot, or else the axes in the docstring, which a trial may replace; else empty.

    Raises:
        Unbindable: if no binding supports them.
    """
    annotated = slot.supported_axes(axes_of(slot.annotation), path, column, source="annotation")
    if annotated and not (column == "reward" and annotated in ("ragged", "lists")):
        return annotated
    if column not in OPEN_COLUMNS:
        return ""
    if annotated:  # rewards in a list of tensors: one per response, or one per prompt
        arguments.open_axes[path] = f"{column}[{annotated}]"
        return annotated
    arguments.open_axes[path] = column
    documented = slot.supported_axes(slot.documented, path, column, source="docstring")
    if documented:
        arguments.documented.add(path)
    return documented


def _is_array(slot: Slot, role: str) -> bool:
    """Whether a slot is a numpy array; ``index`` is a tensor of tokens in a function of logits.

    Without a role, only the annotation decides.
    """
    words = "" if slot.annotation is inspect.Parameter.empty else str(slot.annotation).lower()
    return "ndarray" in words or (slot.name in LABELS and role == "group" and "tensor" not in words)


def _dataclass_object(kind: type, bind: Mapping[str, Any], path: str, arguments: Arguments) -> Object:
    """The codec of an object of this dataclass; ``bind`` has the bindings of its fields."""
    slots = [Slot(name, one.annotation, one.default) for name, one in parameters_of(kind).items()]
    return Object(kind, bind_slots(slots, bind, arguments, path))


def _container(bind: Mapping[str, Any], slot: Slot, path: str, arguments: Arguments) -> Codec:
    """The codec of a dict or an object; ``bind`` has the bindings of its keys or attributes."""
    if slot.dataclass:
        return _dataclass_object(slot.dataclass, bind, path, arguments)
    parts = bind_slots([Slot(key) for key in bind], bind, arguments, path)
    return Namespace(**parts) if isinstance(bind, Attributes) else Table(parts)


def _row_table(bind: Mapping[str, Any], slot: Slot, path: str, arguments: Arguments) -> RowTable:
    """The codec of a list with one dict or object per response; ``bind`` has the bindings of its keys or attributes."""
    make: type | str | None
    if slot.item_class:
        parts, make = _dataclass_object(slot.item_class, bind, path, arguments).parts, slot.item_class
    else:
        parts = bind_slots([Slot(key) for key in bind], bind, arguments, path)
        make = "argparse.Namespace" if isinstance(bind, Attributes) else None
    return RowTable({name: listed(part) for name, part in parts.items()}, make)
