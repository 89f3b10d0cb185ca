"""Imports of verl's modules that need an inference engine and a GPU, on a specimen in words of our own."""

import importlib.metadata

import pytest
import torch

from adapters.checks import Loads
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.adapters.verl.engine_imports import engine_installed

WORKERS = """
    from importlib.metadata import version

    import torch

    NUMBER, GPU = version("vllm"), torch.cuda.get_device_name(0)
"""


@pytest.mark.parametrize("number", ["9999.0", "0.8.5"])
def test_module_that_asks(loads: Loads, number: str) -> None:
    """A module reads the version of vLLM and the name of the GPU; afterwards neither is there."""
    target = loads(FRAMEWORK, {"verl/workers/fsdp_workers.py": WORKERS})
    with engine_installed("vllm", number):
        module = target.module("verl.workers.fsdp_workers")
    assert number == module.NUMBER
    assert "NVIDIA" in module.GPU
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("vllm")


def test_other_packages(loads: Loads) -> None:
    """Other packages keep their version, and both functions are restored."""
    loads(FRAMEWORK, {"verl/other.py": ""})
    before = importlib.metadata.version, torch.cuda.get_device_name
    with engine_installed("vllm"):
        assert importlib.metadata.version("torch") == before[0]("torch")
    assert (importlib.metadata.version, torch.cuda.get_device_name) == before
