"""AReaL's updates through earlier engines: the loss inside of ``train_batch``, or inputs that are copied."""

from collections.abc import Callable

import pytest

from adapters.areal.test_updates import ENGINE, _batch, _files
from adapters.checks import Loads, by_setting, check_verdict, outputs_of
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.updates import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.gradient_against_advantage import LAW as GRD002
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

CALL, METHOD = "                self._compute_logprobs_and_loss(", "        def _compute_logprobs_and_loss("
INLINE = """                loss = loss_fn(logits, part)
                loss *= share
                loss.backward()
            return self.optimizer.step()
"""
COPIED = """        def forward_backward_batch(self, part):
            @dataclasses.dataclass
            class Context:
                inputs: dict

            return dataclasses.asdict(Context(part))["inputs"]

"""


def _inline(**options: bool) -> dict[str, str]:
    """The specimen with its loss inside of the engine, and methods under the names of that time."""
    files = _files(**options)
    engine = files["areal/engine/fsdp_engine.py"]
    files["areal/engine/fsdp_engine.py"] = engine.partition(CALL)[0] + INLINE
    for path in ("areal/trainer/ppo/actor.py", "areal/trainer/ppo/critic.py", "areal/trainer/sft/lm_engine.py"):
        source = files[path].replace("_ppo_update", "ppo_update").replace("_train_lm", "train_lm")
        reading = "                logprobs, entropy = gather_logprobs_entropy(logits, part['input_ids'].roll(-1))\n"
        source = source.replace("def loss(logprobs, entropy, part):\n", f"def loss(logits, part):\n{reading}")
        source = source.replace(
            "def loss(value, part):\n", "def loss(logits, part):\n                value = logits.squeeze(-1)\n"
        )
        source = source.replace("(data, loss, lambda", "(data, loss_fn=loss, loss_weight_fn=lambda")
        files[path] = (
            f"{source}\n    def gather_logprobs_entropy(*inputs): raise RuntimeError('there is no vocabulary')\n"
        )
    return files


def _copying(**options: bool) -> dict[str, str]:
    """The specimen with an engine that copies the inputs of the loss."""
    files = _files(**options)
    engine = files["areal/engine/fsdp_engine.py"].replace(METHOD, f"{COPIED}{METHOD}")
    engine = engine.replace(
        "(logits, part, loss_fn, share)", "(logits, self.forward_backward_batch(part), loss_fn, share)"
    )
    files["areal/engine/fsdp_engine.py"] = engine.replace(
        "import torch\n", "import dataclasses\n\n    import torch\n", 1
    )
    return files


#: A class with the name and the shape of the one that the first releases pass.
TENSORS = """
    class TensorDict(dict):
        def __init__(self, columns, batch_size):
            super().__init__(columns)
            assert batch_size == [len(columns["input_ids"])]

"""


def _first(**options: bool) -> dict[str, str]:
    """The specimen with trainers that take a ``TensorDict``."""
    files = _inline(**options)
    for path in ("areal/trainer/ppo/actor.py", "areal/trainer/ppo/critic.py", "areal/trainer/sft/lm_engine.py"):
        checked = "(self, data):\n            assert isinstance(data, TensorDict)\n"
        files[path] = files[path].replace("(self, data):\n", checked) + TENSORS
    return files


SHAPES = (_inline, _copying, _first)


def _bound(target: Target) -> dict[str, Boundary]:
    return by_setting(boundaries(target))


def test_the_specimen_has_the_call() -> None:
    assert CALL in ENGINE
    assert METHOD in ENGINE


@pytest.mark.parametrize("shape", SHAPES)
def test_by_hand(loads: Loads, shape: Callable[..., dict[str, str]]) -> None:
    """The same losses as through the engine of today."""
    target = loads(FRAMEWORK, shape())
    found = _bound(target)
    assert outputs_of(target, found["ppo"], "ppo", _batch())["loss"].item() == pytest.approx(-3.0)
    assert outputs_of(target, found["critic"], "critic", _batch())["loss"].item() == pytest.approx(4 / 2 / 3)
    assert outputs_of(target, found["sft"], "sft", _batch())["loss"].item() == pytest.approx(2.0)
    check_verdict(GRD002, found["ppo"], "ppo", target, found=False)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("found", [False, True])
def test_weight_of_a_micro_batch(loads: Loads, shape: Callable[..., dict[str, str]], found: bool) -> None:
    """Micro-batches that count alike, whatever they hold, are a loss that depends on the cut."""
    target = loads(FRAMEWORK, shape(by_tokens=not found))
    check_verdict(SPL001, _bound(target)["ppo"], "ppo", target, found=found)
