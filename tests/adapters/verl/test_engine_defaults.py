"""The options with which verl's vLLM server samples, on a specimen in words of our own."""

import json
from typing import Any

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, engine_defaults
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

SERVER = """
    SamplingParams = AsyncEngineArgs = copy_to_local = None

    class AsyncvLLMServer:
        async def init_engine(self):
            path, own = copy_to_local(self.config.model.path, use_shm=False), self.config.rollout
            options = dict(n=1, PENALTY)
            for name in own.keys():
                if hasattr(SamplingParams(), str(name)):
                    options[name] = own.get(name)
            OTHER
            engine = AsyncEngineArgs(model=path, generation_config=FILE, override_generation_config=options)
            self.engine = engine.create_engine_config()
"""

SOUND = {"PENALTY": "repetition_penalty=1.0", "OTHER": "pass", "FILE": '"auto"'}
CONFIG: dict[str, Any] = {
    "actor_rollout_ref": {
        "model": {"path": ""},
        "rollout": {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "n": 1, "prompt_length": 8},
    }
}
NAME = "a model with sampling options"


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    tree = {
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py": rewritten(SERVER, SOUND | broken),
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG),
        "verl/trainer/__init__.py": "",
    }
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    return target, the_only(engine_defaults.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """The server gets the configuration of a run."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({}, False),
        ({"PENALTY": "logprobs=0"}, True),
        ({"PENALTY": "logprobs=0", "FILE": '"vllm"'}, False),  # vLLM does not read the model's file
        ({"OTHER": 'del options["temperature"]'}, True),
        ({"OTHER": 'del options["top_k"]'}, True),
        ({"OTHER": 'options["top_k"] = -1'}, True),
    ],
)
def test_options_of_the_model_do_not_replace_those_of_the_rollout(
    loads: Loads, broken: dict[str, str], found: bool
) -> None:
    """A penalty of the model that nothing turns off, its temperature, and another limit than the rollout's."""
    target, boundary = _bound(loads, **broken)
    check_verdict(CFG004, boundary, NAME, target, found=found)


def test_releases_without_the_server(loads: Loads) -> None:
    """A release without this server has no boundary here."""
    assert list(engine_defaults.boundaries(loads(FRAMEWORK, {"verl/workers/__init__.py": ""}, {}))) == []
