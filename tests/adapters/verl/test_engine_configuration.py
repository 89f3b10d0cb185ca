"""The constructor of verl's engine on FSDP, on a specimen of it in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, engine_configuration
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.nonsense_accepted import LAW as CFG003

ENGINE = """
    class FSDPEngine:
        def __init__(self, model_config, engine_config, optimizer_config, checkpoint_config):
            self.engine_config = engine_config
            shared, packed = engine_config.ulysses_sequence_parallel_size > 1, model_config.use_remove_padding
            if REFUSED:
                raise ValueError("ranks cannot share these sequences")
            self._init_device_mesh()

    class FSDPEngineWithLMHead(FSDPEngine):
        pass
"""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class FSDPEngineConfig:
        ulysses_sequence_parallel_size: int = 1
        use_torch_compile: bool = True
"""


def _bound(loads: Loads, refused: str) -> tuple[Target, list[Boundary]]:
    tree = files() | {
        "verl/workers/engine/fsdp/transformer_impl.py": ENGINE.replace("REFUSED", refused),
        "verl/workers/config/__init__.py": CONFIG,
    }
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    return target, [b for b in engine_configuration.boundaries(target) if isinstance(b, Boundary)]


def test_reads_back(loads: Loads) -> None:
    """Settings and arguments survive the round trip."""
    target, (boundary,) = _bound(loads, "shared and not packed")
    assert answering({("engine", "ranks share packed sequences"): boundary}, target) == []
    check_round_trips(target, [boundary])


@pytest.mark.parametrize(
    ("refused", "found"), [("shared and not packed", False), ("False", True), ("shared", True), ("not packed", True)]
)
def test_padded_sequences_on_several_ranks(loads: Loads, refused: str, found: bool) -> None:
    """They are refused, and neither packed sequences nor one rank is."""
    target, (boundary,) = _bound(loads, refused)
    check_verdict(CFG003, boundary, "one rank, packed sequences", target, found=found)


def test_releases_without_the_engine(loads: Loads) -> None:
    """Have no such boundary."""
    assert not list(engine_configuration.boundaries(loads(FRAMEWORK, files())))
