"""slime: reward normalisation, advantages, off-policy masking, KL, losses and their reduction."""

from collections.abc import Iterator
from types import ModuleType

from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.frameworks.framework import Framework
from rl_sentinel.frameworks.slime import advantages, correction, kl, losses, scan
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.world import one_process

#: slime's functions need torch alone; these are read when its modules are imported.
LIGHT = """
packaging==25.0
PyYAML==6.0.3
"""


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    for module in (advantages, scan, correction, kl, losses):
        yield from module.boundaries(target)


def _parallel_state() -> ModuleType:
    module = ModuleType("megatron.core.mpu")
    vars(module).update(one_process())
    return module


FRAMEWORK = Framework(
    name="slime",
    package="slime",
    boundaries=_boundaries,
    light=lambda _version: LIGHT,
    packages=lambda _version: "numpy; then, with --no-deps: slime (this checkout) megatron-core packaging pyyaml",
    doubles={"megatron.core.mpu": _parallel_state},
    bare=("slime.backends.megatron_utils",),
    environment={"TORCHDYNAMO_DISABLE": "1"},
)
