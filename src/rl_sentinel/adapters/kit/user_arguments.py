"""Choose a codec for each parameter of a user's function, by its binding, annotation and name."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any

from rl_sentinel.adapters.kit.annotated_axes import axes_of, documented_axes, item_class
from rl_sentinel.adapters.kit.bind_text import BINDINGS, codec_of, column_of, with_outcome
from rl_sentinel.adapters.kit.call_by_name import MORE, not_callable_by_name, takes_more
from rl_sentinel.adapters.kit.container_probe import keys_read
from rl_sentinel.adapters.kit.containers import Namespace, Object, Table
from rl_sentinel.adapters.kit.numbers import NUMBERS, numbers_of
from rl_sentinel.adapters.kit.roles import ROLES, parameters_of, role_of, roles_of
from rl_sentinel.adapters.kit.row_table import RowTable, listed
from rl_sentinel.adapters.kit.user_layouts import function_codec
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Stage
from rl_sentinel.core.case import Scalar
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.search.filled_batch import filled
from rl_sentinel.search.small_cases import small_cases

#: Parameter names under which frameworks pass labels as numpy arrays of strings.
LABELS = ("index", "uid", "uids")

#: Role -> the value to pass if the parameter has no default: below 1, so that a wrong exponent shows.
_DISCOUNTS: Mapping[str, float] = {"gamma": 0.9, "lambda": 0.8}

#: Parameter names of models and token ids, for losses that call a model -> binding.
_MODEL_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("model", "policy", "actor"), "model"),
    **{name: name for name in ("input_ids", "attention_mask", "labels", "completion_ids", "prompt_ids", "prompt_mask")},
}

#: Parameter names of the tokens, for functions that compute log-probs from logits.
_TOKEN_NAMES = ("labels", "input_ids", "completion_ids", "index", "indices", "ids", "targets", "actions", "responses")

#: Without a parameter for a model or its tokens, this name means one prompt id per response.
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
        attributes: the unknown ones that are attributes of an object.
    """

    codecs: dict[str, Codec] = field(default_factory=dict)
    numbers: dict[str, Scalar] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    open: dict[str, str] = field(default_factory=dict)
    documented: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter, a field of a dataclass, or a key of a dict; ``documented`` are its axes in a docstring."""

    name: str
    annotation: object = inspect.Parameter.empty
    default: object = inspect.Parameter.empty
    documented: str = ""

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty


def probe_batch() -> Batch:
    """A batch of 6 rows and 2 prompts, 5 tokens wide, one mask with a gap: no two axes have the same size."""
    return filled(
        [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0]],
        reward=[1, 0, 2, 0.5, 3, -1],
        group=[0, 0, 0, 1, 1, 1],
        length=[5, 2, 3, 1, 4, 3],
    )


def arguments_of(function: Callable[..., Any], stage: Stage, bind: Mapping[str, Any]) -> Arguments:
    """Choose a codec for each parameter that is bound or has a known name; other parameters keep their defaults.

    Raises:
        Unbindable: if the function cannot be called with keyword arguments, or a binding is wrong.

    Example:
        >>> from rl_sentinel.adapters.kit.user_arguments import arguments_of
        >>> arguments = arguments_of(lambda rewards, index, colour: rewards, "advantage", {"rewards": "token_rewards"})
        >>> arguments.codecs["index"], arguments.unknown
        (PromptIds(form='strings', column='group'), ['colour'])
    """
    parameters = parameters_of(function)
    bind, parts = _split_paths(bind)
    name = getattr(function, "__qualname__", str(function))
    if reason := not_callable_by_name(parameters):
        raise Unbindable(f"{name} {reason}")
    if wrong := [key for key in (*bind, *parts) if key not in parameters and not takes_more(parameters)]:
        raise Unbindable(f"bind names {', '.join(wrong)}, expected parameters of {name}: {', '.join(parameters)}")
    if stage == "batch" and (models := [n for n in parameters if _MODEL_NAMES.get(n) == "model" and n not in bind]):
        raise Unbindable(
            f"{name} takes a model ({models[0]}), expected logits: check the function that reads its logits"
        )
    slots = [
        Slot(n, p.annotation, p.default, documented_axes(function, n))
        for n, p in parameters.items()
        if p.kind not in MORE
    ]
    slots += [Slot(key) for key in bind if key not in parameters]
    if _PROMPT_LABELS in parameters and not any(n in _MODEL_NAMES for n in parameters if n != _PROMPT_LABELS):
        bind = {_PROMPT_LABELS: "group", **bind}
    described = {slot.name: parts.pop(slot.name) for slot in slots if slot.name in parts and _class_of(slot)}
    bind = {**with_outcome(bind, parameters), **{name: _nested(items) for name, items in described.items()}}
    arguments = Arguments()
    arguments.codecs = dict(_bind_slots(slots, stage, bind, arguments, ""))
    for parameter in [*arguments.unknown]:
        if items := _container_bindings(function, parameter, arguments, stage, parts.get(parameter, {})):
            read = items[0] if isinstance(items, list) else items
            if unread := [f"{parameter}.{key}" for key in parts.pop(parameter, {}) if key not in read]:
                raise Unbindable(f"bind names {', '.join(unread)}, expected what {name} reads: {', '.join(read)}")
            arguments.unknown.remove(parameter)
            slot = next(one for one in slots if one.name == parameter)
            arguments.codecs |= _bind_slots([slot], stage, {parameter: items}, arguments, "")
    if wrong := [f"{parameter}.{key}" for parameter, items in parts.items() for key in items]:
        raise Unbindable(f"bind names {', '.join(wrong)}, but {name} does not read a dict or an object there")
    return arguments


def _class_of(slot: Slot) -> type | None:
    """The dataclass that the annotation of a slot names, or that of the items of a list."""
    if isinstance(slot.annotation, type) and is_dataclass(slot.annotation):
        return slot.annotation
    return item_class(slot.annotation)


def _nested(items: Mapping[str, Any]) -> dict[str, Any]:
    """Bindings by dotted paths as dicts in dicts."""
    plain, parts = _split_paths(items)
    return {**plain, **{name: _nested(inner) for name, inner in parts.items()}}


class _Attributes(dict[str, Any]):
    """Bindings of the attributes of an object, unlike a dict with the bindings of keys."""


def _split_paths(bind: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Separate bindings of parameters from bindings of keys inside a parameter, such as ``batch.rewards``."""
    plain = {name: value for name, value in bind.items() if "." not in name}
    parts: dict[str, dict[str, Any]] = {}
    for path, value in bind.items():
        name, dot, key = path.partition(".")
        if dot:
            parts.setdefault(name, {})[key] = value
    return plain, parts


def _container_bindings(
    function: Callable[..., Any], parameter: str, arguments: Arguments, stage: Stage, parts: Mapping[str, Any]
) -> dict[str, Any] | list[dict[str, Any]]:
    """A binding for each key that the function reads from a parameter, in a list if it is a list of dicts or objects.

    Empty if it is no container. A key bound to ``...`` gets the codec of its name; unknown keys are reported when the
    container is bound.
    """

    def by_name(name: str, *, bindings: Mapping[str, str]) -> Codec | None:
        role = role_of(name)
        column = ROLES[role].column if role else ""
        binding = parts.get(name, bindings.get(column, ...))
        return dict(_bind_slots([Slot(name)], stage, {name: binding}, Arguments(), "")).get(name)

    keys = keys_read(function, parameter, arguments.codecs, by_name, probe_batch())
    if keys is None:
        return {}
    bound = {name: parts.get(name, ...) for name in (*keys.known, *keys.unknown)}
    items = _Attributes(bound) if keys.attributes else bound
    return [items] if keys.rows else items


def _bind_slots(
    slots: list[Slot], stage: Stage, bind: Mapping[str, Any], arguments: Arguments, place: str
) -> Iterator[tuple[str, Codec]]:
    """The codec of each slot; adds numbers, unknown slots and open axes to ``arguments``."""
    renamed = {name: text for name, text in bind.items() if _names_a_number(text)}
    own = {name: value for name, value in bind.items() if name not in renamed}
    bind = _Attributes(own) if isinstance(bind, _Attributes) else own
    roles = roles_of([slot.name for slot in slots])
    if stage == "batch":
        roles |= {slot.name: "token" for slot in slots if slot.name in _TOKEN_NAMES}
    stated = {name: x for name, x in bind.items() if isinstance(x, int | float) and not isinstance(x, bool)}
    open_slots = [s for s in slots if s.name in stated or bind.get(s.name, ...) is ...]
    values, passed = numbers_of({renamed.get(s.name, s.name): stated.get(s.name, s.default) for s in open_slots}, stage)
    exact = {role_of(name): float(x) for name, x in stated.items() if role_of(name) in (*_DISCOUNTS, "temperature")}
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
            arguments.attributes |= {path} if isinstance(bind, _Attributes) else set()


def _names_a_number(value: object) -> bool:
    """Whether a binding is the known name of a number, such as ``clip_range``: the parameter is read as if named so."""
    return isinstance(value, str) and column_of(value) == value and role_of(value) in (*_DISCOUNTS, *NUMBERS)


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
        return codec_of(text, default, array=_is_array(slot))
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
    if role in _DISCOUNTS:
        arguments.numbers[role] = _DISCOUNTS[role] if slot.required else _number(slot.default)
        return Constant(_DISCOUNTS[role]) if slot.required else None
    column = BINDINGS.get(role) or (ROLES[role].column if role and role != "pi_squared" else "")
    column = column or (_MODEL_NAMES.get(slot.name, "") if slot.required else "")
    if not column:
        return None
    axes = _axes(slot, column, path, arguments)
    return codec_of(f"{column}{f'[{axes}]' if axes else ''}", array=_is_array(slot))


def _axes(slot: Slot, column: str, path: str, arguments: Arguments) -> str:
    """The axes that the annotation of a slot states, else those of the docstring, which others may replace."""
    annotated = axes_of(slot.annotation)
    if annotated and not (column == "reward" and annotated in ("ragged", "lists")):
        return annotated
    if column not in OPEN_COLUMNS:
        return ""
    if annotated:  # rewards in a list of tensors: one per response, or one per prompt
        arguments.open[path] = f"{column}[{annotated}]"
        return annotated
    arguments.open[path] = column
    if slot.documented:
        arguments.documented.add(path)
    return slot.documented


def _number(value: object) -> Scalar:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 1.0


def _is_array(slot: Slot) -> bool:
    words = "" if slot.annotation is inspect.Parameter.empty else str(slot.annotation).lower()
    return "ndarray" in words or (slot.name in LABELS and "tensor" not in words)


def _dataclass_object(kind: type, bind: Mapping[str, Any], stage: Stage, arguments: Arguments, place: str) -> Object:
    slots = [
        Slot(
            one.name,
            one.type,
            inspect.Parameter.empty
            if one.default is MISSING and one.default_factory is MISSING
            else None
            if one.default is MISSING
            else one.default,
        )
        for one in fields(kind)
        if one.init
    ]
    return Object(kind, dict(_bind_slots(slots, stage, bind, arguments, place)))


def _container(value: Mapping[str, Any], slot: Slot, stage: Stage, arguments: Arguments, place: str) -> Codec:
    """The codec of a dict or of an object with these bindings."""
    if is_dataclass(slot.annotation) and isinstance(slot.annotation, type):
        return _dataclass_object(slot.annotation, value, stage, arguments, place)
    parts = dict(_bind_slots([Slot(key) for key in value], stage, value, arguments, place))
    return Namespace(**parts) if isinstance(value, _Attributes) else Table(parts)


def _row_table(value: Mapping[str, Any], slot: Slot, stage: Stage, arguments: Arguments, place: str) -> RowTable:
    """The codec of a list with one dict or object per response."""
    kind = item_class(slot.annotation)
    if kind is not None:
        item = _dataclass_object(kind, value, stage, arguments, place)
        return RowTable({name: listed(part) for name, part in item.parts.items()}, kind)
    parts = _bind_slots([Slot(key) for key in value], stage, value, arguments, place)
    make = "argparse.Namespace" if isinstance(value, _Attributes) else None
    return RowTable({name: listed(part) for name, part in parts}, make)
