"""Generation in SkyRL's call shapes, in words of our own: sound, and with faults."""

import pytest

from adapters.checks import Loads, by_setting, judged_at
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.generator import FAMILIES, boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONFIG = """
    from dataclasses import dataclass, field

    @dataclass
    class Sampling:
        logprobs: int | None = 1
        stop: str | None = None

    @dataclass
    class Template:
        name_or_path: str | None = None

    @dataclass
    class Generator:
        batched: bool = False
        use_conversation_multi_turn: bool = True
        step_wise_trajectories: bool = False
        apply_overlong_filtering: bool = False
        sampling_params: Sampling = field(default_factory=Sampling)
        chat_template: Template = field(default_factory=Template)

    @dataclass
    class SkyRLTrainConfig:
        generator: Generator = field(default_factory=Generator)
"""

ENGINE = """
    def get_sampling_params_for_backend(backend, sampling):
        return {"skip_special_tokens": SKIPS, "logprobs": sampling.logprobs, "stop": sampling.stop}
"""

GENERATOR = """
    import skyrl_gym

    CONFIG = {"keep_answer": False, "lose_end": False, "train_observation": False, "mixed_template": False}
    CONFIG |= {"filter_finished": False, "filter_nothing": False, "early_reward": False}
    CONFIG |= {"configured": False, "end_after_cut": False, "always_stop": False}
    CONFIG |= {"repeated": False}

    class SkyRLGymGenerator:
        def __init__(self, generator_cfg, skyrl_gym_cfg, inference_engine_client, tokenizer):
            self.cfg, self.engine, self.tokenizer = generator_cfg, inference_engine_client, tokenizer

        async def generate(self, batch):
            rows = []
            for prompt, extras in zip(batch["prompts"], batch["env_extras"]):
                rows += await self.converse(prompt, extras, batch["sampling_params"])
            names = ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs", "rewards", "stop_reasons")
            return {name: [row[n] for row in rows] for n, name in enumerate(names)}

        async def converse(self, prompt, extras, sampling):
            template = self.cfg.chat_template.name_or_path
            custom = template if not CONFIG["mixed_template"] else None
            environment = skyrl_gym.make("text", env_config={}, extras=extras)
            before, (prompt, _) = len(prompt), environment.init(prompt)
            opening = self.tokenizer.apply_chat_template(prompt, chat_template=custom)
            head = self.tokenizer.apply_chat_template(prompt, chat_template=template, add_generation_prompt=True)
            head = head[len(opening):]
            joined = not self.cfg.use_conversation_multi_turn
            start, ids, mask, logprobs, done, rows = opening + head, [], [], [], False, []
            while not done:
                request = {"prompt_token_ids": [start + ids], "sampling_params": sampling}
                made = await self.engine.generate(request)
                own, text = made["response_ids"][0], made["responses"][0]
                numbers = (made["response_logprobs"] or [[0.0] * len(own)])[0]
                answer = environment.step(text)
                done = answer["done"]
                if joined and own[-1] == self.tokenizer.eos_token_id and not done:
                    own, numbers = own[:-1], numbers[:-1]
                if joined and done and CONFIG["lose_end"]:
                    numbers = numbers[:-1] + [0.0]
                new, last = [], done and not CONFIG["keep_answer"]
                if answer["observations"] and not last:
                    said = answer["observations"][0]
                    new = self.tokenizer.encode(said["content"])
                    if not joined:
                        said = self.tokenizer.apply_chat_template([said], chat_template=template)
                        new = [10] + said + head
                ids, mask = ids + own + new, mask + [1] * len(own) + [int(CONFIG["train_observation"])] * len(new)
                logprobs = logprobs + numbers + [0.0] * len(new)
                cut_off = made["stop_reasons"][0] == "length" or CONFIG["filter_finished"]
                if self.cfg.apply_overlong_filtering and cut_off and not CONFIG["filter_nothing"]:
                    mask = [0] * len(mask)
                reason = "stop" if CONFIG["always_stop"] else made["stop_reasons"][0]
                if self.cfg.step_wise_trajectories:
                    rewards = [0.0] * (len(own) - 1) + [answer["reward"]]
                    rows.append((start, ids, mask, logprobs, rewards, reason))
                    start, ids, mask, logprobs = start + ids, [], [], []
            if CONFIG["end_after_cut"] and joined and made["stop_reasons"][0] == "length":
                ids, mask, logprobs = ids + [self.tokenizer.eos_token_id], mask + [1], logprobs + [0.0]
            if CONFIG["repeated"]:
                again = self.tokenizer.apply_chat_template(prompt[before:], chat_template=template)
                ids, mask, logprobs = again + ids, [0] * len(again) + mask, [0.0] * len(again) + logprobs
            late = 0 if CONFIG["early_reward"] else 1
            paid = [0.0] * (len(ids) - 1) + [late * answer["reward"]]
            paid = [(1 - late) * answer["reward"], *paid[1:]] if len(paid) > 1 else paid
            if CONFIG["configured"] and self.cfg.sampling_params.logprobs is None:
                logprobs = None
            return rows or [(start, ids, mask, logprobs, paid, reason)]
"""


def _bound(loads: Loads, *faults: str, skips: bool = True) -> tuple[Target, dict[str, Boundary]]:
    source = GENERATOR
    for fault in faults:
        source = source.replace(f'"{fault}": False', f'"{fault}": True')
    folder = "skyrl/backends/skyrl_train/inference_servers"
    tree = {
        "skyrl/__init__.py": "",
        "skyrl/train/config.py": CONFIG,
        f"{folder}/engine_utils.py": ENGINE.replace("SKIPS", str(skips)),
        "skyrl/train/generators/skyrl_gym_generator.py": source,
    }
    target = loads(FRAMEWORK, tree, {"skyrl_gym/__init__.py": "make = None\n"})
    return target, by_setting(boundaries(target))


def test_sound(loads: Loads) -> None:
    """Every token, mask, log-prob and reward arrives, however the conversation is kept."""
    target, found = _bound(loads)
    assert found.keys() == FAMILIES.keys()
    for name, boundary in found.items():
        judgement = judged_at(PLC004, boundary, name, target)
        assert judgement.tried > 0, name
        assert judgement.found is None, name


@pytest.mark.parametrize(
    ("fault", "setting", "output"),
    [
        ("keep_answer", "conversation, answered at the end", "token"),
        ("lose_end", "one message", "rollout_logprob"),
        ("train_observation", "conversation", "mask"),
        ("mixed_template", "custom template", "token"),
        ("filter_finished", "batched, overlong filtering", "mask"),
        ("filter_nothing", "conversation, cut off, overlong filtering", "mask"),
        ("early_reward", "one message", "reward"),
        ("configured", "conversation, log-probs of the call", "rollout_logprob"),
        ("end_after_cut", "one message, cut off", "token"),
        ("always_stop", "conversation, cut off", "token"),
        ("repeated", "conversation, opened by the environment", "token"),
    ],
)
def test_faults(loads: Loads, fault: str, setting: str, output: str) -> None:
    """What is kept, lost, trained, mixed, filtered, paid early, or dropped as the configuration asks for nothing.

    Also an end that no model sampled, a stop reason that no engine returned, and the prompt in the response.
    """
    target, found = _bound(loads, fault)
    break_ = judged_at(PLC004, found[setting], setting, target).found
    assert break_ is not None
    assert break_.expectation.name == output


@pytest.mark.parametrize("repeated", [False, True])
def test_two_templates_do_not_hide_a_repeated_prompt(loads: Loads, repeated: bool) -> None:
    """The setting without an opening reports that a row mixes two templates."""
    target, found = _bound(loads, "mixed_template", *(["repeated"] if repeated else []))
    opened = "custom template, opened by the environment"
    assert judged_at(PLC004, found["custom template"], "custom template", target).found is not None
    assert (judged_at(PLC004, found[opened], opened, target).found is not None) == repeated


def test_text_with_special_tokens(loads: Loads) -> None:
    """An environment that scores the exact text gives another reward for a text with its end token."""
    target, found = _bound(loads, skips=False)
    break_ = judged_at(PLC004, found["conversation"], "conversation", target).found
    assert break_ is not None
    assert break_.expectation.name == "reward"


def test_round_trip(loads: Loads) -> None:
    """The arguments are read back into the columns."""
    target, found = _bound(loads)
    for boundary in found.values():
        check_round_trip(target, boundary)
