"""Pinned packages that TRL's trainers need at run time, by release."""

import re

from rl_sentinel.adapters.installation import Installation, requirement

#: Pins for all releases.
COMMON = """
PyYAML==6.0.3
anyio==4.16.0
certifi==2026.10.18
charset-normalizer==3.5.2
dill==0.4.0
h11==0.16.0
hf-xet==1.8.0
httpcore==1.0.9
httpx==0.28.1
idna==3.20
multiprocess==0.70.18
pandas==3.1.1
psutil==7.2.2
pyarrow==22.0.0
python-dateutil==2.9.0.post0
regex==2026.11.15
requests==2.34.2
safetensors==0.8.0
six==1.17.0
tqdm==4.70.1
tzdata==2026.6
urllib3==2.8.0
xxhash==4.1.0
"""

#: Pins for releases before 1.0, which need transformers 4: ``_is_package_available`` of transformers 5 returns a pair,
#: which they read as True, and then they import absent packages.
_WITH_TRANSFORMERS_4 = """
huggingface_hub==0.36.2
accelerate==1.10.1
datasets==4.4.1
fsspec==2025.10.0
"""

_BEFORE_1_0 = _WITH_TRANSFORMERS_4 + "transformers==4.57.6 tokenizers==0.22.2"

_BEFORE_0_20 = _WITH_TRANSFORMERS_4 + "transformers==4.51.3 tokenizers==0.21.4"

#: For releases that do not import Liger's layers, which need a GPU.
_LIGER = " liger-kernel==0.8.5"

#: First release of a range -> its pins, newest first. How ``Trainer.training_step`` scales a loss under accumulation
#: changed in transformers 4.46 and 4.53: a release that allows a version in between is audited with it.
LIGHT = {
    "1.0": """
transformers==5.23.0
tokenizers==0.23.3
huggingface_hub==2.4.0
accelerate==1.15.0
datasets==4.8.4
httpx2==2.16.2
httpcore2==2.16.2
truststore==0.10.5
"""
    + _LIGER,
    "0.20": _BEFORE_1_0 + _LIGER,
    "0.18": _BEFORE_0_20 + _LIGER,
    "0.12": _BEFORE_0_20,
    "0.0": _BEFORE_1_0,
}


def light(version: str) -> str:
    """Requirements for pip, as exact pins; a ``version`` without numbers counts as the newest release."""
    numbers = [int(n) for n in re.findall(r"\d+", version)[:2]] or [1, 0]
    return COMMON + next(pins for first, pins in LIGHT.items() if numbers >= [int(n) for n in first.split(".")])


def installation(version: str) -> Installation:
    """The installation for a reproduction script: TRL with its requirements, and pins of libraries that TRL calls."""
    release, note = requirement("trl", version)
    pins = " ".join(
        line
        for line in light(version).split()
        if line.startswith(("transformers", "accelerate", "datasets", "liger-kernel"))
    )
    return Installation(packages=f"{pins} {release}", note=note)
