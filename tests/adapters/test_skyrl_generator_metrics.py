"""Metrics of SkyRL's generator, on a specimen of its batched call in words of our own."""

import pytest

from adapters.checks import Loads, answering, by_setting, check_verdict
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK, generator_metrics
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001

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
    def get_metrics_from_generator_output(output, uids):
        rewards = [sum(one) if isinstance(one, list) else one for one in output["rewards"]]
        solved = {uid: any(r > 0 for r, name in zip(rewards, uids) if name == uid) for uid in uids}
        scores = {"avg_score": sum(rewards) / len(rewards), "pass_at_n": sum(solved.values()) / len(solved)}
        return scores | ({"pass_at_n": None} if isinstance(output["rewards"][0], list) and UNDEFINED else {})

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
            if not self.cfg.batched:
                return await self.converse(batch)
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

        async def converse(self, batch):
            rewards = []
            for prompt, extras in zip(batch["prompts"], batch["env_extras"]):
                ids, done = self.tokenizer.apply_chat_template(prompt), False
                environment, paid = skyrl_gym.make("text", env_config={}, extras=extras), []
                while not done:
                    request = {"prompt_token_ids": [ids], "sampling_params": batch["sampling_params"]}
                    answer = environment.step((await self.engine.generate(request))["responses"][0])
                    paid, done = [*paid, answer["reward"]], answer["done"]
                rewards.append(PAID)
            return {"rewards": rewards}
"""


SOUND = {"MEASURED": "cut", "PAID": "paid", "UNDEFINED": "False"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    metrics, generator = METRICS, GENERATOR
    for word, code in {**SOUND, **broken}.items():
        metrics, generator = metrics.replace(word, code), generator.replace(word, code)
    folder = "skyrl/backends/skyrl_train/inference_servers"
    tree = {
        "skyrl/__init__.py": "",
        "skyrl/train/config.py": CONFIG,
        f"{folder}/engine_utils.py": ENGINE,
        "skyrl/train/generators/utils.py": metrics,
        "skyrl/train/generators/skyrl_gym_generator.py": generator,
    }
    target = loads(FRAMEWORK, tree, {"skyrl_gym/__init__.py": "make = None\n"})
    return target, by_setting(generator_metrics.boundaries(target))


@pytest.mark.parametrize(
    ("measured", "found"),
    [("cut", False), ("sampled", True), ("texts", True)],
    ids=["what is returned", "before it is cut", "characters"],
)
def test_lengths(loads: Loads, measured: str, found: bool) -> None:
    target, bound = _bound(loads, MEASURED=measured)
    assert answering({("generator", name): boundary for name, boundary in bound.items()}, target) == []
    check_verdict(MET001, bound["batched, metrics"], "batched, metrics", target, found=found)


@pytest.mark.parametrize("setting", ["conversation, scores", "one turn, scores"])
@pytest.mark.parametrize(
    ("broken", "found"),
    [({}, False), ({"UNDEFINED": "True"}, True), ({"PAID": "paid[:1]"}, None), ({"PAID": "paid[-1] / 2"}, True)],
    ids=["summed", "missing for rewards per token", "first turn only", "halved"],
)
def test_scores(loads: Loads, setting: str, broken: dict[str, str], found: bool | None) -> None:
    """A score of the first turn only is wrong for conversations of several turns."""
    target, bound = _bound(loads, **broken)
    check_verdict(
        MET001, bound[setting], setting, target, found=(setting.startswith("conversation") if found is None else found)
    )


def test_round_trip(loads: Loads) -> None:
    target, bound = _bound(loads)
    for boundary in bound.values():
        check_round_trip(target, boundary)
