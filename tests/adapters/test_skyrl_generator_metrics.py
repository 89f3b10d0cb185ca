"""Metrics of SkyRL's generator, on a specimen of its batched call in words of our own."""

from collections.abc import Callable

import pytest

from adapters.checks import answering, judged_at
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK, generator_metrics
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001

Loads = Callable[..., Target]

CONFIG = """
    from dataclasses import dataclass, field

    @dataclass
    class Sampling:
        max_generate_length: int = 8
        logprobs: int | None = 1

    @dataclass
    class Generator:
        batched: bool = False
        sampling_params: Sampling = field(default_factory=Sampling)

    @dataclass
    class SkyRLTrainConfig:
        generator: Generator = field(default_factory=Generator)
"""

ENGINE = """
    def get_sampling_params_for_backend(backend, sampling):
        return {"logprobs": sampling.logprobs}
"""

METRICS = """
    def get_rollout_metrics(responses, masks):
        lengths, trained = [len(one) for one in responses], [sum(one) for one in masks]
        return {
            "generate/avg_num_tokens": sum(lengths) / len(lengths),
            "generate/max_num_tokens": float(max(lengths)),
            "generate/avg_assistant_tokens": sum(trained) / len(trained),
        }
"""

GENERATOR = """
    import skyrl_gym
    from skyrl.train.generators.utils import get_rollout_metrics

    class SkyRLGymGenerator:
        def __init__(self, generator_cfg, skyrl_gym_cfg, inference_engine_client, tokenizer):
            self.cfg, self.engine, self.tokenizer = generator_cfg, inference_engine_client, tokenizer

        async def generate(self, batch):
            assert self.cfg.batched
            prompts = [self.tokenizer.apply_chat_template(prompt) for prompt in batch["prompts"]]
            request = {"prompt_token_ids": prompts, "sampling_params": batch["sampling_params"]}
            made = await self.engine.generate(request)
            sampled, texts = made["response_ids"], made["responses"]
            rewards = []
            for extras, text in zip(batch["env_extras"], texts):
                rewards.append(skyrl_gym.make("text", env_config={}, extras=extras).step(text)["reward"])
            cut = [one[: self.cfg.sampling_params.max_generate_length] for one in sampled]
            masks = [[1] * len(one) for one in cut]
            metrics = get_rollout_metrics(MEASURED, masks)
            return {"response_ids": cut, "loss_masks": masks, "rewards": rewards, "rollout_metrics": metrics}
"""


def _bound(loads: Loads, measured: str) -> tuple[Target, Boundary]:
    folder = "skyrl/backends/skyrl_train/inference_servers"
    tree = {
        "skyrl/__init__.py": "",
        "skyrl/train/config.py": CONFIG,
        f"{folder}/engine_utils.py": ENGINE,
        "skyrl/train/generators/utils.py": METRICS,
        "skyrl/train/generators/skyrl_gym_generator.py": GENERATOR.replace("MEASURED", measured),
    }
    target = loads(FRAMEWORK, tree, {"skyrl_gym/__init__.py": "make = None\n"})
    (boundary,) = generator_metrics.boundaries(target)
    assert isinstance(boundary, Boundary)
    return target, boundary


@pytest.mark.parametrize(
    ("measured", "found"),
    [("cut", False), ("sampled", True), ("texts", True)],
    ids=["what is returned", "before it is cut", "characters"],
)
def test_lengths(loads: Loads, measured: str, found: bool) -> None:  # noqa: FBT001 - parametrised
    target, boundary = _bound(loads, measured)
    assert answering({("generator", "batched, metrics"): boundary}, target) == []
    judgement = judged_at(MET001, boundary, "batched, metrics", target)
    assert judgement.tried > 0
    assert (judgement.found is not None) is found


def test_round_trip(loads: Loads) -> None:
    check_round_trip(*_bound(loads, "cut"))
