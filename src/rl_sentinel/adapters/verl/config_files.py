"""Read sections of verl's YAML configuration files."""

import importlib
import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
        _interpolations(folder / file, section) if resolved else _pickled_config(folder / file)
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

    config = load_section(file, section, fields)
    # OmegaConf.resolve visits all values, which takes five times as long.
    names = _interpolations(_config_folder() / file, section)
    left = [name for name in names if not any(f"{name}.".startswith(f"{field}.") for field in fields)]
    values = {name: OmegaConf.select(config, name) for name in left}
    for name, value in values.items():
        OmegaConf.update(config, name, value, merge=False)
    return config


@cache
def _interpolations(file: Path, section: str) -> tuple[str, ...]:
    """The paths of a section's interpolations outside of lists, such as ``${trainer.n_gpus_per_node}``."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - installed only with the target

    config = pickle.loads(_pickled_config(file))  # noqa: S301 - made here
    return tuple(_interpolated(OmegaConf.select(config, section) if section else config, ""))


def _interpolated(node: Any, place: str) -> Iterator[str]:  # noqa: ANN401 - an OmegaConf section
    from omegaconf import OmegaConf  # noqa: PLC0415 - installed only with the target

    for key in node:
        if OmegaConf.is_interpolation(node, key):
            yield f"{place}{key}"
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
