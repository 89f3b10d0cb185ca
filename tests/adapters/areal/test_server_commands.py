"""AReaL's commands that start servers, on a specimen of its configuration in words of our own."""

import pytest
import torch

from adapters.checks import Loads, by_setting, judged_at, outputs_of, rewritten
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.server_commands import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

OPTIONS = """
    from dataclasses import asdict, dataclass
    from types import SimpleNamespace

    def is_version_less(package, version):
        raise ImportError(package)

    pkg_version = SimpleNamespace(is_version_equal=is_version_less)

    def command(**options):
        words = ["python3", "-m", "server"]
        for name, value in options.items():
            if value is False and OFF:
                words.append(f"--no-{name}".replace("_", "-"))
            elif value is not None and value is not False:
                words += [f"--{name}".replace("_", "-"), *([] if value is True else [str(value)])]
        return words

    @dataclass
    class vLLMConfig:
        seed: int = 1
        dtype: str = "bfloat16"
        enforce_eager: bool = False
        FLAG

        @staticmethod
        def build_cmd(config, tp_size, pp_size=1, host=None):
            return command(tensor_parallel_size=tp_size, **asdict(config))

    @dataclass
    class SGLangConfig:
        random_seed: int = 1
        dtype: str = "bfloat16"
        context_length: int = 8
        disable_radix_cache: bool = True

        @staticmethod
        def build_cmd(config, tp_size, base_gpu_id, host, port):
            assert pkg_version.is_version_equal("sglang", "1") and not is_version_less("sglang", "1")
            return command(host=host, port=port, **{**asdict(config), "context_length": LENGTH})
"""

SOUND = {"OFF": "True", "FLAG": "enable_prefix_caching: bool = False", "LENGTH": "config.context_length"}

SETTINGS = ["values", "flags that are on", "flags that are off"]


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    source = rewritten(OPTIONS, SOUND | broken)
    target = loads(FRAMEWORK, {"areal/__init__.py": "", "areal/api/cli_args.py": source})
    servers: dict[str, list[Boundary]] = {}
    for boundary in boundaries(target):
        assert isinstance(boundary, Boundary)
        servers.setdefault(boundary.path.split(".")[-2], []).append(boundary)
    found = {
        (server, name): one for server, several in servers.items() for name, one in by_setting(iter(several)).items()
    }
    return target, found


def test_all_boundaries_answer(loads: Loads) -> None:
    target, found = _bound(loads)
    assert list(found) == [(server, name) for server in ("vLLMConfig", "SGLangConfig") for name in SETTINGS]
    check_calls(target, found.values())


def test_by_hand(loads: Loads) -> None:
    """A number and a text arrive, and a flag is 0 if the command turns it off."""
    target, found = _bound(loads)
    one = batch_of(torch.ones(1, 1, dtype=torch.bool))
    values = outputs_of(target, found["vLLMConfig", "values"], "values", one)
    assert {name: value.item() for name, value in values.items()} == {"option seed": 5.0, "option dtype": 1.0}
    values = outputs_of(target, found["vLLMConfig", "flags that are off"], "flags that are off", one)
    assert {name: value.item() for name, value in values.items()} == {
        "option enforce_eager": 0.0,
        "option enable_prefix_caching": 0.0,
    }


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({}, set()),
        ({"OFF": "False"}, {("vLLMConfig", "flags that are off")}),
        ({"OFF": "False", "FLAG": "no_enable_prefix_caching: bool = True"}, set()),
        ({"LENGTH": "None"}, {("SGLangConfig", "values")}),
    ],
)
def test_found_where_broken_alone(loads: Loads, broken: dict[str, str], where: set[tuple[str, str]]) -> None:
    """A flag that is on by default and cannot be turned off, unless its field says no; and a limit that is left out."""
    target, found = _bound(loads, **broken)
    judgements = {key: judged_at(CFG004, one, key[1], target) for key, one in found.items()}
    assert all(judgement.tried for judgement in judgements.values())
    assert {key for key, judgement in judgements.items() if judgement.found is not None} == where
