"""Packages that verl's code needs at run time, and packages that a stand-alone script needs."""

from rl_sentinel.adapters.installation import Installation, requirement

#: Pins that serve every release from 0.2 to 0.9.1 and a newest checkout, with all that they import.
LIGHT = """
omegaconf==2.4.0
PyYAML==6.0.3
tensordict==0.10.0
cloudpickle==3.1.2
pyvers==0.1.0
orjson==3.11.4
packaging==25.0
torchdata==0.11.0
"""

#: Packages that the trainer imports and that an installation of verl does not bring.
FORGOTTEN = ("cachetools", "fastapi", "uvicorn", "TransferQueue", "pillow")


def light(_version: str) -> str:
    """Lines for pip, each an exact pin."""
    return LIGHT


def installation(version: str) -> Installation:
    """What a script that imports verl as its users do needs: it, and what it forgets to ask for."""
    release, note = requirement("verl", version)
    # Functions of a split vocabulary import Megatron, whose own requirements ask for a GPU.
    return Installation(packages=" ".join((release, *FORGOTTEN)), alone="megatron-core", note=note)
