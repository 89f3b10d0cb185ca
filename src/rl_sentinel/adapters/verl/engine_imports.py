"""Import verl's modules that ask, while they are imported, for an inference engine and a GPU."""

import importlib.metadata
from collections.abc import Iterator
from contextlib import contextmanager

import torch

#: The name of a GPU: verl of spring 2025 asks whether it is one of AMD's.
GPU = "NVIDIA H100 80GB HBM3"


@contextmanager
def engine_installed(name: str, number: str = "9999.0") -> Iterator[None]:
    """Make an engine appear installed on a machine with a GPU, by default in a version newer than any release."""
    known, named = importlib.metadata.version, torch.cuda.get_device_name

    def version(distribution_name: str) -> str:
        return number if distribution_name == name else known(distribution_name)

    importlib.metadata.version = version
    torch.cuda.get_device_name = lambda *_device: GPU
    try:
        yield
    finally:
        importlib.metadata.version, torch.cuda.get_device_name = known, named
