"""Sections of the configuration files that ship with verl, for releases before there was a class for each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.codec import Codec


def shipped(target: Target, section: str, fields: Mapping[str, Codec], trainer: str = "ppo_trainer") -> Codec:
    """A section of a trainer's configuration, or all of it, with fields set."""
    folder = target.root / "verl" / "trainer" / "config"
    whole = folder / f"_generated_{trainer}.yaml"
    file = whole if whole.is_file() else folder / f"{trainer}.yaml"
    parts = {"file": Constant(str(file)), "section": Constant(section), "fields": Table(fields)}
    return Object(shipped_section, parts, at={"fields": ""}, shared=True)


def shipped_section(file: str, section: str, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an OmegaConf section
    """A section of the configuration in a file, with fields set."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - a package of the target, absent elsewhere

    config = composed(Path(file))
    config = OmegaConf.select(config, section) if section else config
    for key, value in fields.items():
        OmegaConf.update(config, key, value, force_add=True)
    return config


def composed(file: Path) -> Any:  # noqa: ANN401 - an OmegaConf configuration
    """A file merged over the defaults that it lists, as Hydra does: ``name``, or ``folder@section: name``."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - a package of the target, absent elsewhere

    own = OmegaConf.load(file)
    merged = OmegaConf.create()
    for entry in own.pop("defaults", []):
        if entry == "_self_":
            continue
        ((place, name),) = entry.items() if hasattr(entry, "items") else (("", entry),)
        group, _, section = place.partition("@")
        part = composed((file.parent / group / name).with_suffix(".yaml"))
        OmegaConf.update(merged, section or group, part) if place else merged.merge_with(part)
    return OmegaConf.merge(merged, own)
