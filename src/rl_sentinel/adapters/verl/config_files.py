"""Read sections of verl's YAML configuration files."""

import importlib
import pickle
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.value_codecs import constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.codec import Codec


@dataclass(frozen=True, slots=True)
class Fields(Table):
    """Fields of nested sections, by their dotted paths."""

    def get(self, value: Any, name: str) -> Any:  # noqa: ANN401 - an OmegaConf section
        """The field at a path, or None if it is missing."""
        for word in name.split("."):
            if value is None or word not in value:
                return None
            value = value[word]
        return value


def default_config(
    target: Target, section: str, fields: Mapping[str, Codec], trainer: str = "ppo_trainer", *, resolved: bool = False
) -> Codec:
    """A section of a trainer's default configuration, with some fields set; an empty ``section`` means everything.

    ``resolved`` replaces interpolations by their values once, for code that resolves them on each call.
    """
    folder = target.root / "verl" / "trainer" / "config"
    generated = f"_generated_{trainer}.yaml"
    file = generated if (folder / generated).is_file() else f"{trainer}.yaml"
    if (folder / file).is_file():
        # Once, and not in each process that is forked for a boundary.
        _default_values(folder / file, section) if resolved else _pickled_config(folder / file)
    parts = {**constants(file=file, section=section), "fields": Fields(fields)}
    load = load_resolved if resolved else load_section
    return Object(load, parts, at={"fields": ""}, shared=True)


@contextmanager
def untraced() -> Iterator[None]:
    """Run without the trace function that records calls, because OmegaConf makes a million calls per file."""
    before = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(before)


@untraced()
def load_section(file: str, section: str, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an OmegaConf section
    """Load a section of a file in the folder ``verl/trainer/config``, and set some fields."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - installed only with the target

    config = pickle.loads(_pickled_config(_config_folder() / file))  # noqa: S301 - made here; four times as fast as deepcopy
    config = OmegaConf.select(config, section) if section else config
    for key, value in fields.items():
        OmegaConf.update(config, key, value, force_add=True)
    return config


@untraced()
def load_resolved(file: str, section: str, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an OmegaConf section
    """Load a section like :func:`load_section`, and resolve its interpolations outside of lists and of ``fields``."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - installed only with the target

    path, config = _config_folder() / file, load_section(file, section, fields)
    before = f"{section}." if section else ""
    known, moved = _default_values(path, section), _moved_by(_interpolations(path), {before + name for name in fields})
    # OmegaConf.resolve visits all values, and each interpolation is parsed anew: most have their default values.
    names = [n.removeprefix(before) for n in _interpolations(path) if n.startswith(before)]
    left = [name for name in names if not any(f"{name}.".startswith(f"{field}.") for field in fields)]
    values = {n: known[n] if n in known and before + n not in moved else OmegaConf.select(config, n) for n in left}
    for name, value in values.items():
        OmegaConf.update(config, name, value, merge=False)
    return config


def _moved_by(names: Mapping[str, tuple[str, ...]], fields: Iterable[str]) -> set[str]:
    """The fields, and the interpolations whose values may depend on them, directly or through others.

    ``names`` has the paths that each interpolation refers to.
    """
    moved = set(fields)
    while more := {n for n, refers in names.items() if n not in moved and _meet(refers, moved)}:
        moved |= more
    return moved


def _meet(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether a path is equal to one of the others, inside of it, or around it."""
    return any(f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}.") for a in some for b in others)


@cache
def _default_values(file: Path, section: str) -> Mapping[str, Any]:
    """The values of a section's interpolations in the file as it is; without those that have no value yet."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - installed only with the target

    config, values, before = load_section(file.name, section, {}), dict[str, Any](), f"{section}." if section else ""
    for name in [n.removeprefix(before) for n in _interpolations(file) if n.startswith(before)]:
        with suppress(Exception):  # it refers to a field that a trainer requires
            values[name] = OmegaConf.select(config, name)
    return values


@cache
def _interpolations(file: Path) -> Mapping[str, tuple[str, ...]]:
    """The interpolations outside of lists, such as ``${trainer.n_gpus_per_node}``, and the paths that they refer to."""
    config = pickle.loads(_pickled_config(file))  # noqa: S301 - made here
    return {name: tuple(_references(name, text)) for name, text in _interpolated(config, "")}


def _references(name: str, text: str) -> Iterator[str]:
    """The paths in the text of an interpolation; those with leading dots are relative to its place."""
    for dots, path in re.findall(r"(?<![\w.])(\.*)(\w[\w.]*)", text):
        place = ".".join(name.split(".")[: -len(dots)]) if dots else ""
        yield f"{place}.{path}".strip(".")


def _interpolated(node: Any, place: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - an OmegaConf section
    """The path and the text of each interpolation."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - installed only with the target

    for key in node:
        if OmegaConf.is_interpolation(node, key):
            yield f"{place}{key}", str(OmegaConf.to_container(node, resolve=False)[key])
        elif OmegaConf.is_dict(node) and not OmegaConf.is_missing(node, key) and OmegaConf.is_dict(node[key]):
            yield from _interpolated(node[key], f"{place}{key}.")


def _config_folder() -> Path:
    return Path(next(iter(importlib.import_module("verl.trainer").__path__))) / "config"


@cache
def _pickled_config(file: Path) -> bytes:
    """A file merged over its ``defaults``, pickled."""
    return pickle.dumps(merge_defaults(file))


def merge_defaults(file: Path) -> Any:  # noqa: ANN401 - an OmegaConf configuration
    """Load a file and merge it over its ``defaults``: ``name``, ``folder: name`` or ``folder@section: name``."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - installed only with the target

    own = OmegaConf.load(file)
    merged = OmegaConf.create()
    for entry in own.pop("defaults", []):
        if entry == "_self_":
            continue
        ((place, name),) = entry.items() if hasattr(entry, "items") else (("", entry),)
        group, _, section = place.partition("@")
        part = merge_defaults((file.parent / group / name).with_suffix(".yaml"))
        OmegaConf.update(merged, section or group, part) if place else merged.merge_with(part)
    return OmegaConf.merge(merged, own)
