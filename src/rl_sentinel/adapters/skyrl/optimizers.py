"""SkyRL's optimizer settings that reach Megatron."""

from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.megatron_optimizer import bind_megatron_optimizer
from rl_sentinel.adapters.skyrl.generator import has_setting
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound

PATH = "skyrl.backends.skyrl_train.distributed.megatron.optimizer.init_megatron_optim_config"

#: A field of Megatron's configuration -> SkyRL's option.
NAMES: Mapping[str, str] = {
    "lr": "lr",
    "clip_grad": "max_grad_norm",
    "weight_decay": "weight_decay",
    "adam_beta1": "adam_betas",
    "adam_beta2": "adam_betas",
}

_SECTION = "trainer.policy.optimizer_config"
_DOCS = (
    "config.py, OptimizerConfig, or the configuration file: learning rate, AdamW's betas and decay, gradient clipping"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the options that the configuration of a release has."""
    if target.has(PATH) and not target.fails(PATH):
        names = {field: name for field, name in NAMES.items() if has_setting(target, f"{_SECTION}.{name}")}
        yield from bindable(
            target, bind_megatron_optimizer(PATH, names, cite=_DOCS, reach=f"{_SECTION} with trainer.strategy=megatron")
        )
