"""Describe the arguments of a user's function: its parameters, and the keys of the dicts and objects that it reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rl_sentinel.adapters.kit.annotated_axes import documented_axes
from rl_sentinel.adapters.kit.argument_messages import why_no_container
from rl_sentinel.adapters.kit.call_by_name import MORE, not_callable_by_name, takes_more
from rl_sentinel.adapters.kit.container_probe import Keys, keys_read
from rl_sentinel.adapters.kit.function_arguments import Arguments, Attributes, Slot
from rl_sentinel.adapters.kit.ignored_ids import ignored_ids
from rl_sentinel.adapters.kit.logit_names import TOKEN_NAMES
from rl_sentinel.adapters.kit.numbers import DISCOUNTS, NUMBERS
from rl_sentinel.adapters.kit.outcome_binding import carries_outcome, with_outcome
from rl_sentinel.adapters.kit.parameter_codecs import MODEL_NAMES, bind_slots, has_tokens
from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.adapters.kit.parameter_uses import is_read
from rl_sentinel.adapters.kit.roles import parameters_of, role_of, roles_of
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Stage
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.search.filled_batch import filled

#: Roles of numbers of a formula.
_NUMBERS = (*NUMBERS, *DISCOUNTS)


def probe_batch() -> Batch:
    """A batch of 6 rows and 2 prompts, 5 tokens wide, with a gap in one mask; no two axes have the same size."""
    return filled(
        [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0]],
        reward=[1, 0, 2, 0.5, 3, -1],
        group=[0, 0, 0, 1, 1, 1],
        length=[5, 2, 3, 1, 4, 3],
    )


def arguments_of(
    function: Callable[..., Any], stage: Stage, bind: Mapping[str, Any], kept: Iterable[str] = ()
) -> Arguments:
    """Choose a codec for each parameter that is bound or has a known name; others keep a default or are unknown.

    Args:
        function: the function.
        stage: its stage.
        bind: what the user binds, by parameter.
        kept: numbers, by their names in formulas, whose parameters keep their defaults because the user states them.

    Raises:
        Unbindable: if the function cannot be called with keyword arguments, or a binding is wrong.

    Example:
        >>> from rl_sentinel.adapters.kit.user_arguments import arguments_of
        >>> arguments = arguments_of(lambda rewards, index, color: color, "advantage", {"rewards": "token_rewards"})
        >>> arguments.codecs["index"], arguments.unknown
        (PromptIds(form='strings', column='group'), ['color'])
    """
    parameters = parameters_of(function)
    bind, bind_inside = _split_paths(bind)
    _refuse_what_cannot_be_called(function, stage, bind, bind_inside)
    slots = _slots(function, stage, bind)
    for slot in slots:
        if slot.described_class and slot.name in bind_inside:
            bind[slot.name] = _nested(bind_inside.pop(slot.name))
    unread = [name for name in parameters if name not in bind and not is_read(function, name)]
    slots = [slot for slot in slots if slot.required or slot.name not in unread or role_of(slot.name) in _NUMBERS]
    arguments = Arguments(stage, kept=frozenset(kept), of_model=has_tokens(parameters), present=_roles_of_fields(slots))
    arguments.ignored = [n for n in unread if role_of(n) in _NUMBERS or isinstance(parameters[n].default, float)]
    arguments.untrained = ignored_ids(function, (*TOKEN_NAMES, *ROLES["token"].names)) if stage == "policy-loss" else {}
    arguments.codecs = bind_slots(slots, bind, arguments)
    # The code does not read these: any value will do.
    arguments.codecs |= {name: Constant(None) for name in arguments.unknown if name in unread}
    arguments.unknown = [name for name in arguments.unknown if name not in unread]
    bind |= _bind_containers(function, slots, bind_inside, arguments)
    _bind_numbers_and_objects(slots, bind, arguments)
    if not carries_outcome(bind, parameters):
        _bind_outcome(slots, bind, arguments)
    arguments.unknown = list(dict.fromkeys(arguments.unknown))
    return arguments


def _bind_numbers_and_objects(slots: Iterable[Slot], bind: Mapping[str, Any], arguments: Arguments) -> None:
    """Bind numbers and objects again after all columns are known: a default may hide the use of a column."""
    arguments.present |= frozenset().union(*(codec.columns for codec in arguments.codecs.values()))
    numbers = [slot for slot in slots if role_of(slot.name) in NUMBERS]
    objects = [slot for slot in slots if slot.name not in bind and slot.described_class]
    arguments.codecs |= bind_slots([*numbers, *objects], bind, arguments)


def _bind_outcome(slots: Iterable[Slot], bind: Mapping[str, Any], arguments: Arguments) -> None:
    """Bind rewards of tokens again, so that they include the outcome; no other argument has it."""
    changed = {name: with_outcome(binding) for name, binding in bind.items()}
    changed = {name: new for name, new in changed.items() if new is not bind[name] and new != bind[name]}
    arguments.codecs |= bind_slots([slot for slot in slots if slot.name in changed], changed, arguments)


def _refuse_what_cannot_be_called(
    function: Callable[..., Any], stage: Stage, bind: Mapping[str, Any], bind_inside: Mapping[str, Any]
) -> None:
    """Raise an error if the function cannot be called with keyword arguments, or if a binding is wrong.

    Raises:
        Unbindable: if it cannot be called with keywords, takes a model and not logits, or a binding names no parameter.
    """
    parameters, name = parameters_of(function), _name_of(function)
    if reason := not_callable_by_name(parameters):
        raise Unbindable(f"{name} {reason}")
    if wrong := [key for key in (*bind, *bind_inside) if key not in parameters and not takes_more(parameters)]:
        raise Unbindable(f"bind names {', '.join(wrong)}, expected parameters of {name}: {', '.join(parameters)}")
    if stage == "batch" and (models := [n for n in parameters if MODEL_NAMES.get(n) == "model" and n not in bind]):
        raise Unbindable(
            f"{name} takes a model ({models[0]}), expected logits: pass the function that takes the logits instead"
        )


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", str(function))


def _slots(function: Callable[..., Any], stage: Stage, bind: Iterable[str]) -> list[Slot]:
    """The parameters of a function, and further keyword arguments that the user binds."""
    parameters = parameters_of(function)
    # In a loss, [T] may mean all tokens end to end, as if lengths were passed too: a trial decides on the layout.
    packed = stage in ("policy-loss", "value-loss", "kl")
    packed = packed or any(role_of(n) in ("lengths", "cumulative_lengths") for n in parameters)
    slots = [
        Slot(n, p.annotation, p.default, documented_axes(function, n), packed)
        for n, p in parameters.items()
        if p.kind not in MORE
    ]
    return slots + [Slot(key) for key in bind if key not in parameters]


def _bind_containers(
    function: Callable[..., Any], slots: Iterable[Slot], bind_inside: dict[str, dict[str, Any]], arguments: Arguments
) -> dict[str, Any]:
    """Bind the unknown parameters that are dicts, objects or lists of these, by the names read from them.

    Args:
        function: the function.
        slots: its parameters.
        bind_inside: parameter -> the user's bindings of its keys, by path; bound parameters are removed.
        arguments: its arguments.

    Returns:
        Parameter -> the bindings of its keys.

    Raises:
        Unbindable: if the user binds a key that the function does not read, or of a parameter that is not a container.
    """
    name, bound = _name_of(function), dict[str, Any]()
    slot_of = {slot.name: slot for slot in slots}
    _open_models(function, bind_inside, arguments)
    for parameter in [one for one in arguments.unknown if one in slot_of]:
        items = _container_bindings(function, parameter, bind_inside, arguments)
        if not items:
            continue
        read, stated = items[0] if isinstance(items, list) else items, bind_inside.pop(parameter, {})
        paths, known = [*_paths(read)], ", ".join(f"{parameter}.{path}" for path in _paths(read))
        # A key of a known name that the user binds is passed although it is not read, as a parameter is.
        read |= {key: text for key, text in stated.items() if key not in paths and role_of(key)}
        if wrong := [f"{parameter}.{key}" for key in stated if key not in (*paths, *read)]:
            raise Unbindable(f"bind has {', '.join(wrong)}, expected keys that {name} reads: {known}")
        arguments.unknown.remove(parameter)
        bound[parameter] = items
        arguments.codecs |= bind_slots([slot_of[parameter]], {parameter: items}, arguments)
    for parameter, stated in bind_inside.items():
        keys = ", ".join(f"{parameter}.{key}" for key in stated)
        raise Unbindable(f"bind names {keys}, but {why_no_container(name, function, parameter)}")
    return bound


def _container_bindings(
    function: Callable[..., Any], parameter: str, bind_inside: Mapping[str, Mapping[str, Any]], arguments: Arguments
) -> dict[str, Any] | list[dict[str, Any]]:
    """The binding of each key that the function reads from a parameter, by name.

    A list of one such dict if the parameter is a list of dicts or objects; empty if it is not a container. A key that
    the user does not bind gets ``...``: it is bound by its name, which is checked when the container is bound.

    Args:
        function: the function.
        parameter: the parameter, which is unknown.
        bind_inside: parameter -> the user's bindings of its keys, by path.
        arguments: the arguments of the function; the keys that it writes are added.

    Raises:
        Unbindable: if the function iterates over all keys.
    """
    keys = _keys_of(function, parameter, bind_inside, arguments)
    if keys is None:
        return {}
    arguments.written[parameter] = [*keys.written, *(name for inner in keys.inner.values() for name in inner.written)]
    if keys.whole:
        raise Unbindable(
            f'the function iterates over all keys of {parameter!r}: bind them, as in bind={{"{parameter}": {{"rewards":'
            f' "reward"}}}}; if the keys are prompts, check a function of rewards and group that builds this dict'
        )
    items = _bindings_of(keys, bind_inside.get(parameter, {}))
    return [items] if keys.rows else items


def _bindings_of(keys: Keys, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The user's binding of each key, or ``...`` without a binding; a dict for a key that is a dict or an object."""
    bound = {name: stated.get(name, ...) for name in (*keys.known, *keys.unknown)}
    _, stated_inside = _split_paths(stated)
    for name, inner in keys.inner.items():
        bound[name] = stated[name] if name in stated else _bindings_of(inner, stated_inside.get(name, {}))
    return Attributes(bound) if keys.attributes else bound


def _open_models(
    function: Callable[..., Any], bind_inside: Mapping[str, Mapping[str, Any]], arguments: Arguments
) -> None:
    """Treat a parameter with the name of a model as unknown if the function reads known columns from it."""
    models = [name for name, codec in arguments.codecs.items() if codec.modeled and name in parameters_of(function)]
    without_model = replace(
        arguments,
        codecs={name: codec for name, codec in arguments.codecs.items() if name not in models},
        unknown=[*arguments.unknown, *models],
        of_model=False,
    )
    for name in models:
        keys = _keys_of(function, name, bind_inside, without_model)
        if keys is not None and keys.found and keys.known:
            del arguments.codecs[name]
            arguments.unknown.append(name)
            arguments.of_model = has_tokens(arguments.codecs)


def _keys_of(
    function: Callable[..., Any], parameter: str, bind_inside: Mapping[str, Mapping[str, Any]], arguments: Arguments
) -> Keys | None:
    """The keys that a function reads from a parameter; None if it is no dict or object, and no list of these.

    Args:
        function: the function.
        parameter: the parameter, which is unknown; other unknown parameters may be dicts or objects, too.
        bind_inside: parameter -> the user's bindings of its keys, by path.
        arguments: the arguments of the function.
    """
    unknown = [name for name in arguments.unknown if name in parameters_of(function)]
    codecs_by_name = {name: partial(_codec_of_key, arguments, name, bind_inside.get(name, {})) for name in unknown}
    return keys_read(function, parameter, arguments.codecs, codecs_by_name, probe_batch())


def _codec_of_key(
    arguments: Arguments, parameter: str, stated: Mapping[str, Any], path: str, *, bindings: Mapping[str, str]
) -> Codec | None:
    """The codec of a key of a parameter; None if its name is unknown and has no binding.

    Args:
        arguments: the arguments of the function, which are unchanged.
        parameter: the parameter.
        stated: the user's bindings of the keys, by path.
        path: the key, or the path of keys in nested dicts.
        bindings: column -> the binding of keys that the user does not bind.
    """
    holder, _, name = f"{parameter}.{path}".rpartition(".")
    role = role_of(name)
    binding = stated.get(path, bindings.get(ROLES[role].column if role else "", ...))
    alone = Arguments(arguments.stage, of_model=arguments.of_model)
    return bind_slots([Slot(name)], {name: binding}, alone, holder).get(name)


def _roles_of_fields(slots: Iterable[Slot]) -> frozenset[str]:
    """The roles of the parameters and of the fields of their dataclasses; a model counts as logits."""
    classes = [kind for slot in slots if (kind := slot.described_class)]
    names = [*(slot.name for slot in slots), *(name for kind in classes for name in parameters_of(kind))]
    logits = {"logits"} if any(MODEL_NAMES.get(name) == "model" for name in names) else set[str]()
    return frozenset(roles_of(names).values()) | logits


def _paths(items: Mapping[str, Any]) -> Iterator[str]:
    """The paths of the keys of a container and of the dicts and objects in it, such as ``batch.rewards``."""
    for name, value in items.items():
        yield name
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in _paths(value))


def _nested(items: Mapping[str, Any]) -> dict[str, Any]:
    """Turn bindings by dotted paths into nested dicts."""
    plain, parts = _split_paths(items)
    return {**plain, **{name: _nested(inner) for name, inner in parts.items()}}


def _split_paths(bind: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Separate bindings of parameters from bindings of keys inside a parameter, such as ``batch.rewards``."""
    plain = {name: value for name, value in bind.items() if "." not in name}
    parts: dict[str, dict[str, Any]] = {}
    for path, value in bind.items():
        name, dot, key = path.partition(".")
        if dot:
            parts.setdefault(name, {})[key] = value
    return plain, parts
