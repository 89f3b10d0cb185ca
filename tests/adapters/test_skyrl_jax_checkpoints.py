"""SkyRL's weights on JAX, on a specimen of its functions in words of our own; numpy is in place of JAX."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.jax_checkpoints import WEIGHTS, boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.resume_differs import LAW as RES001

STACKED = """
    def unstack_state(model):
        raise RuntimeError("there are no stacked layers")
"""

MODELS = """
    from pathlib import Path

    import jax
    import jax.numpy as jnp
    import numpy as np
    import safetensors.numpy
    from flax import nnx

    def _key(path, number=None):
        words = [f"experts.{number}" if word == "experts" and number is not None else word for word in path]
        return ".".join(map(str, [*words[:-1], "weight"] if words[-1] in ("kernel", "embedding") else words))

    def _slot(path, number, rank):
        experts = [slice(None)] if "experts" in path and EXPERTS else []
        if number is None:
            return None
        after = [slice(None), slice(rank)] if path[-1] == "lora_A" else [slice(rank), slice(None)]
        return (number, *experts, *after)

    def save_safetensors(config, model, filename, prefix="", filter_fn=None, adapter_index=None, rank=None):
        from skyrl.tx.layers.stacked import unstack_state

        tensors = {}
        for path, param in nnx.to_flat_state(unstack_state(model)):
            slot = _slot(path, adapter_index, rank)
            param = param[...] if slot is None else param[slot]
            if "experts" in path:
                tensors |= {prefix + _key(path, n): param[n].T for n in range(config.get_num_experts())}
            else:
                tensors[prefix + _key(path)] = param if "embed_tokens" in path else param.T
        safetensors.numpy.save_file({name: np.asarray(one) for name, one in tensors.items()}, filename)

    def load_safetensors(
        folder, config, model, skip_lora=True, prefix="", filter_fn=None, adapter_index=None, rank=None
    ):
        from skyrl.tx.layers.stacked import unstack_state

        tensors = {}
        for file in Path(folder).glob("*.safetensors"):
            tensors |= {name.removeprefix(prefix): one for name, one in safetensors.numpy.load_file(file).items()}
        for path, param in nnx.to_flat_state(unstack_state(model)):
            if skip_lora and path[-1] in ("lora_A", "lora_B"):
                continue
            if SKIPS and _key(path) not in tensors:
                continue
            if "experts" in path:
                read = np.stack([tensors[_key(path, n)].T for n in range(config.get_num_experts())])
            else:
                read = tensors[_key(path)] if "embed_tokens" in path else tensors[_key(path)].T
            slot = _slot(path, adapter_index, rank)
            if slot is None:
                param.set_raw_value(jax.device_put(read, param.sharding))
            else:
                param[...] = param[...].at[slot].set(jnp.array(read, dtype=param[...].dtype))
"""


def _bound(loads: Loads, skips: str = "False", experts: str = "True") -> tuple[Target, dict[str, Boundary]]:
    files = {
        "skyrl/__init__.py": "",
        "skyrl/tx/layers/stacked.py": STACKED,
        "skyrl/tx/utils/models.py": MODELS.replace("SKIPS", skips).replace("EXPERTS", experts),
    }
    target = loads(FRAMEWORK, files)
    return target, by_setting(boundaries(target))


def test_sound(loads: Loads) -> None:
    target, every = _bound(loads)
    assert every.keys() == WEIGHTS.keys()
    for setting, boundary in every.items():
        check_verdict(RES001, boundary, setting, target, found=False)


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ({"skips": "True"}, {"weights of experts", "adapter of experts"}),
        ({"experts": "False"}, {"adapter of experts"}),
    ],
    ids=["a name that no expert has", "the axis of the rank"],
)
def test_weights_that_are_lost(loads: Loads, words: dict[str, str], settings: set[str]) -> None:
    target, every = _bound(loads, **words)
    for setting, boundary in every.items():
        check_verdict(RES001, boundary, setting, target, found=setting in settings)


def test_release_without_stacked_layers(loads: Loads) -> None:
    target = loads(FRAMEWORK, {"skyrl/__init__.py": "", "skyrl/tx/utils/models.py": MODELS})
    assert list(boundaries(target)) == []
