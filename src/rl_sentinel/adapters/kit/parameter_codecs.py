"""Choose the codec of one parameter, field of a dataclass or key of a dict: by its binding, annotation and name."""

import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from rl_sentinel.adapters.kit.annotated_axes import axes_of, item_class
from rl_sentinel.adapters.kit.bind_text import BINDINGS, DTYPES, codec_of, column_of
from rl_sentinel.adapters.kit.containers import Namespace, Object, Table
from rl_sentinel.adapters.kit.logit_names import TOKEN_NAMES, bindings_of_logits, bindings_of_marked_tokens
from rl_sentinel.adapters.kit.numbers import DISCOUNTS, NUMBERS, OPTIONAL_PARTS, formula_names, numbers_of
from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.adapters.kit.refused_layouts import supported
from rl_sentinel.adapters.kit.roles import parameters_of, role_inside, role_of, roles_of
from rl_sentinel.adapters.kit.row_table import RowTable, listed
from rl_sentinel.adapters.kit.user_layouts import function_codec
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.core.boundary import Stage
from rl_sentinel.core.case import Scalar
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


@dataclass(slots=True)
class Arguments:
    """The arguments of a user's function.

    Attributes:
        codecs: codec of each parameter.
        numbers: numbers by their names in formulas.
        unknown: paths of parameters that could not be bound (``batch.rewards`` for an item of a container).
        open: path -> column of the parameters whose axes are not stated, or only in a docstring.
        documented: paths of the parameters whose axes a docstring states.
        attributes: the unknown parameters that are attributes of an object.
        kept: numbers, by their names in formulas, whose parameters keep their defaults because the user states them.
        of_model: the function takes a model or its tokens.
        columns: columns of parameters that are already bound.
        ignored: numbers that the function does not read.
        written: the names that the function sets in a parameter, by parameter.
        untrained: name of tokens -> the id that the code expects at untrained tokens.
    """

    codecs: dict[str, Codec] = field(default_factory=dict)
    numbers: dict[str, Scalar] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    open: dict[str, str] = field(default_factory=dict)
    documented: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    kept: frozenset[str] = frozenset()
    of_model: bool = False
    columns: frozenset[str] = frozenset()
    ignored: list[str] = field(default_factory=list)
    written: dict[str, list[str]] = field(default_factory=dict)
    untrained: Mapping[str, int] = field(default_factory=dict)

    def pass_numbers(self, numbers: Mapping[str, float]) -> None:
        """Pass these numbers to the parameters, instead of their defaults."""
        self.codecs |= {name: Constant(x) for name, x in numbers.items()}
        self.numbers |= {formula: x for name, x in numbers.items() for formula in formula_names(role_of(name))}


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter, a field of a dataclass, or a key of a dict.

    ``documented`` has its axes from a docstring; ``packed`` means that another parameter has the response lengths.
    """

    name: str
    annotation: object = inspect.Parameter.empty
    default: object = inspect.Parameter.empty
    documented: str = ""
    packed: bool = False

    def stated(self, axes: str, path: str, column: str, *, source: str) -> str:
        """The axes, if a binding supports them; with lengths, ``[T]`` may mean all tokens, so a trial decides."""
        return "" if self.packed and axes == "T" else supported(axes, path, column, source=source)

    @property
    def required(self) -> bool:
        """Whether the slot has no default."""
        return self.default is inspect.Parameter.empty


class Attributes(dict[str, Any]):
    """Bindings of the attributes of an object; a plain dict has the bindings of keys."""


def has_tokens(names: Iterable[str]) -> bool:
    """Whether one of the names stands for a model or for its tokens; ``prompt_ids`` alone are labels."""
    return any(name in MODEL_NAMES for name in names if name != _PROMPT_LABELS)


def bind_slots(
    slots: list[Slot], stage: Stage, bind: Mapping[str, Any], arguments: Arguments, place: str
) -> Iterator[tuple[str, Codec]]:
    """The codec of each slot; adds numbers, unknown slots and open axes to ``arguments``."""
    renamed = {name: text for name, text in bind.items() if _names_a_number(text)}
    own = {name: value for name, value in bind.items() if name not in renamed}
    labels = not arguments.of_model and not has_tokens(slot.name for slot in slots)
    named = {s.name: "group" for s in slots if labels and s.name == _PROMPT_LABELS and own.get(s.name, ...) is ...}
    own |= named
    bind = Attributes(own) if isinstance(bind, Attributes) else own
    roles = _roles_inside([slot.name for slot in slots], place)
    bind = _of_loss(slots, stage, roles, bind, arguments)
    if stage == "batch":
        roles |= {slot.name: "token" for slot in slots if slot.name in TOKEN_NAMES}
    stated = {name: x for name, x in bind.items() if isinstance(x, int | float) and not isinstance(x, bool)}
    if nan := [name for name, x in stated.items() if x != x]:  # noqa: PLR0124 - NaN
        raise Unbindable(f"bind[{nan[0]}] is nan, expected a number")
    open_slots = [s for s in slots if s.name in stated or bind.get(s.name, ...) is ...]
    numbers = {renamed.get(s.name, s.name): stated.get(s.name, s.default) for s in open_slots}
    values, passed = numbers_of(numbers, stage, _changeable(slots, {*bind, *arguments.kept}, arguments.columns))
    exact = {role_of(name): float(x) for name, x in stated.items() if role_of(name) in (*DISCOUNTS, "temperature")}
    arguments.numbers |= values | exact
    for slot in slots:
        path, role = f"{place}{slot.name}", roles.get(slot.name, "")
        name = renamed.get(slot.name, slot.name)
        if slot.name in bind and bind[slot.name] is not ...:
            yield slot.name, _from_binding(bind[slot.name], slot, role, stage, arguments, f"{path}.")
        elif slot.required and is_dataclass(slot.annotation) and isinstance(slot.annotation, type):
            yield slot.name, _dataclass_object(slot.annotation, {}, stage, arguments, f"{path}.")
        elif slot.required and item_class(slot.annotation) is not None:
            yield slot.name, _row_table({}, slot, stage, arguments, f"{path}.")
        elif name in passed:
            yield slot.name, Constant(passed[name])
        elif codec := _by_name(slot, role_of(name) if slot.name in renamed else role, path, arguments):
            yield slot.name, codec
        elif slot.required and slot.name not in renamed:
            arguments.unknown.append(path)
            arguments.attributes |= {path} if isinstance(bind, Attributes) else set()


def _roles_inside(names: list[str], place: str) -> dict[str, str]:
    """The roles of names; the name of the dict may complete the role of a key, as in ``reference.logprobs``."""
    outer = place.rstrip(".").rpartition(".")[2]
    return roles_of(names) | {name: role for name in names if (role := role_inside(outer, name))}


def _of_loss(
    slots: list[Slot], stage: Stage, roles: Mapping[str, str], bind: dict[str, Any], arguments: Arguments
) -> dict[str, Any]:
    """The bindings, with the default bindings of a loss for logits, tokens and a KL that the user does not state."""
    if stage != "policy-loss":
        return bind
    names, untrained = [slot.name for slot in slots if slot.required], arguments.untrained
    found = bindings_of_logits(roles, names, untrained)
    if not found and "logits" not in arguments.columns:  # beside a model, they are of whole sequences
        found = bindings_of_marked_tokens(roles, [name for name in names if name not in MODEL_NAMES], untrained)
    found |= {slot.name: "kl_k3" for slot in slots if roles.get(slot.name) == "kl" and slot.required}
    return type(bind)({**bind, **{name: text for name, text in found.items() if bind.get(name, ...) is ...}})


def _changeable(slots: list[Slot], stated: Collection[str], columns: frozenset[str]) -> list[str]:
    """The parameters whose default may be replaced: they are not stated, and their part of the formula is compared."""
    roles = {*roles_of([slot.name for slot in slots]).values(), *columns}
    parts = {**OPTIONAL_PARTS, **dict.fromkeys(("clip", "clip_low", "clip_high"), "advantage"), "temperature": "logits"}
    open_slots = [slot.name for slot in slots if not {slot.name, *formula_names(role_of(slot.name))} & set(stated)]
    return [name for name in open_slots if parts.get(role_of(name)) in roles]


def _names_a_number(value: object) -> bool:
    """Whether a binding is the known name of a number, such as ``clip_range``, as if the parameter had this name."""
    return isinstance(value, str) and column_of(value) == value and role_of(value) in (*DISCOUNTS, *NUMBERS)


def _from_binding(  # noqa: PLR0913 - the slot and its context
    value: Any,  # noqa: ANN401 - any value that the user binds
    slot: Slot,
    role: str,
    stage: Stage,
    arguments: Arguments,
    place: str,
) -> Codec:
    if isinstance(value, Codec):
        return value
    if isinstance(value, str):
        default = ROLES[role].column if role else ""
        axes = "" if "[" in value else _axes(slot, value, place.removesuffix("."), arguments)
        text = f"{value}[{axes}]" if axes else value
        if axes_of(slot.annotation) == "list":
            text = text.replace("[K]", "[K list]")
        return codec_of(text, default, array=_is_array(slot, "" if text.split()[-1] in DTYPES else role))
    if isinstance(value, Mapping) and item_class(slot.annotation) is None:
        return _container(value, slot, stage, arguments, place)
    value = [value] if isinstance(value, Mapping) else value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        return _row_table(value[0], slot, stage, arguments, place)
    if callable(value):
        return function_codec(value, small_cases("default")[0].batch)
    return Constant(value)


#: Columns whose axes are found by trial if they are not stated.
OPEN_COLUMNS = frozenset(
    {"reward", "token_rewards", "mask", "group", "advantage", "value", "old_value", "returns", "logprob"}
    | {"old_logprob", "ref_logprob", "rollout_logprob", "reward_baseline", "logits", "token"}
)


def _by_name(slot: Slot, role: str, path: str, arguments: Arguments) -> Codec | None:
    """The codec for a known name, with the axes of the annotation; None for an unknown name."""
    if role in DISCOUNTS:
        chosen = slot.required or (slot.default == 1 and role not in arguments.kept)
        arguments.numbers[role] = DISCOUNTS[role] if chosen else _number(slot.default)
        return Constant(DISCOUNTS[role]) if chosen else None
    if role == "accumulation":  # with 1 micro-batch, a loss that is divided by their number has its formula
        return Constant(1)
    # ids need a size that fits the largest of them; a kl may be the name of an estimator, a weight, or a switch
    plain = role == "kl" and isinstance(slot.default, str | int | float)
    if plain or (role == "prompt_count" and "group" in arguments.columns):
        return None
    column = BINDINGS.get(role) or (ROLES[role].column if role and role != "pi_squared" else "")
    column = column or (MODEL_NAMES.get(slot.name, "") if slot.required else "")
    if not column:
        return None
    if column == "lengths" and slot.annotation in (int, "int") and "." not in path:  # of an item, it is its own length
        return codec_of("width")
    if column == "lengths" and "." not in path:
        arguments.open[path] = column
    axes = _axes(slot, column, path, arguments)
    if column == "reward" and axes == "N" and "cumulative_lengths" in arguments.columns:  # of all tokens
        column = arguments.open[path] = "token_rewards"
    return codec_of(f"{column}{f'[{axes}]' if axes else ''}", array=_is_array(slot, role))


def _axes(slot: Slot, column: str, path: str, arguments: Arguments) -> str:
    """The axes in the annotation of a slot, or else the axes in the docstring, which a trial may replace.

    Raises:
        Unbindable: if no binding supports them.
    """
    annotated = slot.stated(axes_of(slot.annotation), path, column, source="annotation")
    if annotated and not (column == "reward" and annotated in ("ragged", "lists")):
        return annotated
    if column not in OPEN_COLUMNS:
        return ""
    if annotated:  # rewards in a list of tensors: one per response, or one per prompt
        arguments.open[path] = f"{column}[{annotated}]"
        return annotated
    arguments.open[path] = column
    documented = slot.stated(slot.documented, path, column, source="docstring")
    if documented:
        arguments.documented.add(path)
    return documented


def _number(value: object) -> Scalar:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 1.0


def _is_array(slot: Slot, role: str) -> bool:
    """Whether a slot is a numpy array; ``index`` is a tensor of tokens in a function of logits.

    Without a role, only the annotation decides.
    """
    words = "" if slot.annotation is inspect.Parameter.empty else str(slot.annotation).lower()
    return "ndarray" in words or (slot.name in LABELS and role == "group" and "tensor" not in words)


def _dataclass_object(kind: type, bind: Mapping[str, Any], stage: Stage, arguments: Arguments, place: str) -> Object:
    slots = [Slot(name, one.annotation, one.default) for name, one in parameters_of(kind).items()]
    return Object(kind, dict(bind_slots(slots, stage, bind, arguments, place)))


def _container(value: Mapping[str, Any], slot: Slot, stage: Stage, arguments: Arguments, place: str) -> Codec:
    """The codec of a dict or of an object with these bindings."""
    if is_dataclass(slot.annotation) and isinstance(slot.annotation, type):
        return _dataclass_object(slot.annotation, value, stage, arguments, place)
    parts = dict(bind_slots([Slot(key) for key in value], stage, value, arguments, place))
    return Namespace(**parts) if isinstance(value, Attributes) else Table(parts)


def _row_table(value: Mapping[str, Any], slot: Slot, stage: Stage, arguments: Arguments, place: str) -> RowTable:
    """The codec of a list with one dict or object per response."""
    kind = item_class(slot.annotation)
    if kind is not None:
        item = _dataclass_object(kind, value, stage, arguments, place)
        return RowTable({name: listed(part) for name, part in item.parts.items()}, kind)
    parts = bind_slots([Slot(key) for key in value], stage, value, arguments, place)
    make = "argparse.Namespace" if isinstance(value, Attributes) else None
    return RowTable({name: listed(part) for name, part in parts}, make)
