"""slime's options of SGLang's servers, on a specimen of its command line and its engine in words of our own."""

import pytest
import torch

from adapters.checks import Loads, by_setting, outputs_of, rewritten, settings_found
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.engine_options import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

OPTIONS = """
    from sglang.srt.server_args import ServerArgs

    SKIPPED = ("random_seed", "tp_size")

    def add_sglang_arguments(parser):
        hidden = HIDDEN
        plain = parser.add_argument

        def prefixed(*names, **more):
            known = names[-1].removeprefix("--").replace("-", "_")
            if known not in SKIPPED and known not in hidden:
                plain(*(f"--sglang-{name.removeprefix('--')}" for name in names), **more)

        parser.add_argument = prefixed
        ServerArgs.add_cli_args(parser)
        parser.add_argument = plain
        return parser

    def validate_args(args):
        args.sglang_dp_size = args.sglang_data_parallel_size
"""

ENGINE = """
    from dataclasses import fields
    from sglang.srt.server_args import ServerArgs

    def launch_server_process(arguments):
        raise RuntimeError("a server starts here")

    class SGLangEngine:
        def __init__(self, args, rank, sglang_overrides=None):
            self.args, self.rank, self.overrides = args, rank, sglang_overrides or {}

        def init(self, address, port, nccl_port):
            args = self.args
            passed = {
                "model_path": args.hf_checkpoint,
                "random_seed": SEED,
                "port": port,
                "dp_size": args.sglang_dp_size,
                "disable_radix_cache": CACHE,
            }
            for field in fields(ServerArgs):
                if field.name not in passed and hasattr(args, f"sglang_{field.name}"):
                    passed[field.name] = getattr(args, f"sglang_{field.name}")
            passed |= OVERRIDES
            launch_server_process(ServerArgs(**passed))
"""

SOUND = {
    "SEED": "args.seed + self.rank",
    "CACHE": "args.sglang_disable_radix_cache",
    "OVERRIDES": "self.overrides",
}

SETTINGS = ["flags that are on", "flags that are off", "values", "overrides"]


def _bound(loads: Loads, hidden: str = "()", **broken: str) -> tuple[Target, dict[str, Boundary]]:
    folder = "slime/backends/sglang_utils"
    files = {
        "slime/__init__.py": "",
        f"{folder}/arguments.py": rewritten(OPTIONS, {"HIDDEN": hidden}),
        f"{folder}/sglang_engine.py": rewritten(ENGINE, SOUND | broken),
    }
    target = loads(FRAMEWORK, files)
    return target, by_setting(boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    target, found = _bound(loads)
    assert list(found) == SETTINGS
    check_calls(target, found.values())


def test_by_hand(loads: Loads) -> None:
    """Numbers, texts and the seed arrive; an option that the command line skips is not tried."""
    target, found = _bound(loads, hidden='("dtype",)', CACHE="True")
    one = batch_of(torch.ones(1, 1, dtype=torch.bool))
    values = outputs_of(target, found["values"], "values", one)
    assert {name: value.item() for name, value in values.items()} == {
        "context_length": 96.0,
        "max_running_requests": 48.0,
        "kv_cache_dtype": 1.0,
        "chunked_prefill_size": 512.0,
        "random_seed": 5.0,
    }
    values = outputs_of(target, found["flags that are off"], "flags that are off", one)
    assert {name: value.item() for name, value in values.items()} == {
        "disable_radix_cache": 1.0,
        "disable_cuda_graph": 0.0,
        "enable_deterministic_inference": 0.0,
        "enable_mixed_chunk": 0.0,
    }


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({}, set()),
        ({"CACHE": "True"}, {"flags that are off"}),
        ({"SEED": "self.rank"}, {"values"}),
        ({"OVERRIDES": '{"context_length": 8}'}, {"values", "overrides"}),
        ({"OVERRIDES": "{}"}, {"overrides"}),
    ],
)
def test_found_where_broken_alone(loads: Loads, broken: dict[str, str], where: set[str]) -> None:
    """A flag that cannot be turned off, a seed that is left out, a fixed limit, and overrides without effect."""
    target, found = _bound(loads, **broken)
    assert settings_found(CFG004, found, target) == where
