"""verl's optimizer settings that reach Megatron."""

import re
from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.megatron_optimizer import bind_megatron_optimizer
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound

#: Paths of the function that makes Megatron's configuration of an optimizer, newest first.
PATHS = tuple(f"verl.utils.{module}.init_megatron_optim_config" for module in ("megatron.optimizer", "megatron_utils"))

#: A field of Megatron's configuration -> verl's option.
NAMES: Mapping[str, str] = {
    "lr": "lr",
    "clip_grad": "clip_grad",
    "weight_decay": "weight_decay",
    "adam_beta1": "betas",
    "adam_beta2": "betas",
}

#: Files with the options of the Megatron trainer.
FILES = ("optim/megatron.yaml", "ppo_megatron_trainer.yaml")

_DOCS = (
    "verl/trainer/config, optim/megatron.yaml, or optim of ppo_megatron_trainer.yaml: the options and their comments"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the options that the configuration of a release has."""
    path = next((path for path in PATHS if target.has(path) and not target.fails(path)), "")
    if not path:
        return
    files = [target.root / "verl" / "trainer" / "config" / name for name in FILES]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    names = {field: name for field, name in NAMES.items() if re.search(rf"^ *{name}:", text, re.MULTILINE)}
    reach = "actor.optim and critic.optim with strategy=megatron"
    yield from try_bind(
        target, path, "config", lambda: [bind_megatron_optimizer(path, names, cite=_DOCS, reach=reach)] if names else []
    )
