"""SkyRL's options of vLLM's engine, on a specimen of its configuration and its arguments in words of our own."""

import pytest
import torch

from adapters.checks import Loads, by_setting, outputs_of, rewritten, settings_found
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.engine_options import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

CONFIG = '''
    from dataclasses import dataclass, field

    @dataclass
    class InferenceEngineConfig:
        model_dtype: str = "bfloat16"
        max_num_seqs: int = 1024
        enable_prefix_caching: bool = True
        enable_chunked_prefill: bool = True
        """ABOUT"""
        enforce_eager: bool = False
        """Eager execution."""
        engine_init_kwargs: dict = field(default_factory=dict)

    @dataclass
    class GeneratorConfig:
        inference_engine: InferenceEngineConfig = field(default_factory=InferenceEngineConfig)

    @dataclass
    class TrainerConfig:
        seed: int = 42

    @dataclass
    class SkyRLTrainConfig:
        trainer: TrainerConfig = field(default_factory=TrainerConfig)
        generator: GeneratorConfig = field(default_factory=GeneratorConfig)
'''

SERVER = """
    def build_vllm_cli_args(cfg):
        from vllm import AsyncEngineArgs
        from vllm.entrypoints.openai.cli_args import FrontendArgs
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        parser = AsyncEngineArgs.add_cli_args(FrontendArgs.add_cli_args(FlexibleArgumentParser()))
        args = parser.parse_args(args=[])
        engine = cfg.generator.inference_engine
        args.seed = cfg.trainer.seed
        args.dtype = engine.model_dtype
        args.max_num_seqs = LIMIT
        args.enforce_eager = engine.enforce_eager
        args.enable_prefix_caching = engine.enable_prefix_caching
        args.enable_chunked_prefill = CHUNKED
        vars(args).update(engine.engine_init_kwargs)
        return args
"""

SOUND = {
    "ABOUT": "Prefill in parts.",
    "LIMIT": "engine.max_num_seqs",
    "CHUNKED": "engine.enable_chunked_prefill",
}

SETTINGS = ["values", "flags that are on", "flags that are off"]


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    parts = SOUND | broken
    folder = "skyrl/backends/skyrl_train/inference_servers"
    files = {
        "skyrl/__init__.py": "",
        "skyrl/train/config.py": rewritten(CONFIG, {"ABOUT": parts.pop("ABOUT")}),
        f"{folder}/utils.py": rewritten(SERVER, parts),
    }
    target = loads(FRAMEWORK, files)
    return target, by_setting(boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    target, found = _bound(loads)
    assert list(found) == SETTINGS
    check_calls(target, found.values())


def test_by_hand(loads: Loads) -> None:
    """A number and a text arrive, one of them by a dict of options; and a flag that is left out is vLLM's."""
    target, found = _bound(loads, CHUNKED="None")
    one = batch_of(torch.ones(1, 1, dtype=torch.bool))
    values = outputs_of(target, found["values"], "values", one)
    assert {name: value.item() for name, value in values.items()} == {
        "seed": 7.0,
        "dtype": 1.0,
        "max_num_seqs": 48.0,
        "max_model_len": 96.0,
    }
    values = outputs_of(target, found["flags that are off"], "flags that are off", one)
    assert {name: value.item() for name, value in values.items()} == {
        "enforce_eager": 0.0,
        "enable_chunked_prefill": 1.0,
        "enable_prefix_caching": 0.0,
    }


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({}, set()),
        ({"CHUNKED": "None"}, {"flags that are off"}),
        ({"CHUNKED": "None", "ABOUT": "Not yet: not plumbed through to the engine."}, set()),
        ({"CHUNKED": "engine.enforce_eager"}, set()),
        ({"CHUNKED": "not engine.enforce_eager"}, {"flags that are on", "flags that are off"}),
        ({"LIMIT": "1024"}, {"values"}),
    ],
)
def test_found_where_broken_alone(loads: Loads, broken: dict[str, str], where: set[str]) -> None:
    """A flag that does not arrive, unless its documentation says so; a flag that is another; and a fixed limit."""
    target, found = _bound(loads, **broken)
    assert settings_found(CFG004, found, target) == where
