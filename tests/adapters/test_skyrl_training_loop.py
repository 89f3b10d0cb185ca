"""One step of SkyRL's training loop, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict, rewritten
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.skyrl import FRAMEWORK, training_loop
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

CONFIG = """
    from types import SimpleNamespace

    def SkyRLTrainConfig():
        sampling = SimpleNamespace(type=None, min_replace_ratio=0.3)
        algorithm = SimpleNamespace(dynamic_sampling=sampling, advantage_estimator="gae")
        names = "train_batch_size policy_mini_batch_size epochs eval_interval ckpt_interval hf_save_interval"
        numbers = {name: 1 for name in [*names.split(), "max_training_steps", "num_logger_train_samples"]}
        placement = SimpleNamespace(colocate_all=True)
        engine = SimpleNamespace(enable_return_routed_experts=False)
        generator = SimpleNamespace(n_samples_per_prompt=5, step_wise_trajectories=False, inference_engine=engine)
        return SimpleNamespace(
            trainer=SimpleNamespace(algorithm=algorithm, placement=placement, **numbers), generator=generator
        )
"""

BASE = """
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class TrajectoryID:
        instance_id: str
        repetition_id: int
"""

LOGGER = """
    class TrajectoryLogger:
        def log(self, tracker, prompts, generator_output, tokenizer):
            rows = []
            for prompt, tokens, mask, reward in zip(
                prompts, generator_output["response_ids"], generator_output["loss_masks"], generator_output["rewards"]
            ):
                turns = "".join(map(str, mask)).replace("0", " ").split()
                text = prompt[0]["content"] + tokenizer.decode(tokens)
                rows.append((0, sum(reward) if isinstance(reward, list) else reward, len(turns), text))
            tracker.log_samples_to_table(key="table", samples=rows)
"""

TRAINER = """
    from enum import Enum

    import torch
    import tqdm

    class ResumeMode(Enum):
        NONE = "none"

    class RayPPOTrainer:
        def padded(self, rows, fill=0.0):
            width = max(map(len, rows))
            return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])

        async def train(self):
            kept, names, asked = [], [], []
            for prompts in self.train_dataloader:
                samples = self.cfg.generator.n_samples_per_prompt
                prompts = [prompt for prompt in prompts for _ in range(samples)]
                output = await self.generator.generate({"prompts": prompts})
                ids = output.get("trajectory_ids")
                uids = [one.instance_id for one in ids] if ids else [prompt["uid"] for prompt in prompts]
                chat = {prompt["uid"]: prompt["prompt"] for prompt in prompts}
                own = [chat[uid] for uid in uids]
                for row, uid in enumerate(uids):
                    rewards = [output["rewards"][n] for n, other in enumerate(uids) if other == uid]
                    if self.cfg.trainer.algorithm.dynamic_sampling.type != "filter" or len(set(rewards)) > 1:
                        kept.append({name: column[row] for name, column in output.items() if name != "rollout_metrics"})
                        names.append(uid)
                        asked.append(PROMPT)
                if len(set(names)) >= self.cfg.trainer.train_batch_size:
                    break
            output = {name: [row[name] for row in kept] for name in kept[0]}
            self.trajectory_logger.log(self.tracker, asked, output, self.tokenizer)
            total = [sum(one) if isinstance(one, list) else one for one in output["rewards"]]
            mask = self.padded([[1.0] * len(row) for row in output["response_ids"]])
            pad = self.tokenizer.pad_token_id
            tokens = [a + b for a, b in zip(output["prompt_token_ids"], TOKENS)]
            self.train_critic_and_policy({
                "sequences": self.padded(tokens, pad),
                "response_mask": mask,
                "loss_mask": self.padded(output["loss_masks"]),
                "rollout_logprobs": self.padded(output["rollout_logprobs"]),
                "advantages": torch.tensor(total).unsqueeze(1) * mask,
            })
            self._trained = self.trajectory_logger.log
"""

SOUND = {"PROMPT": "own[row]", "TOKENS": "output['response_ids']"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = rewritten(TRAINER, SOUND | broken)
    files = {
        "skyrl/train/config.py": CONFIG,
        "skyrl/train/generators/base.py": BASE,
        "skyrl/train/trainer.py": source,
        "skyrl/train/utils/trajectory_logging.py": LOGGER,
    }
    target = loads(FRAMEWORK, files)
    return target, by_setting(training_loop.boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    target, found = _bound(loads)
    assert list(found) == ["default", "step-wise", "filter"]
    check_calls(target, found.values())


def test_release_without_a_table(loads: Loads) -> None:
    files = {"skyrl/train/config.py": CONFIG, "skyrl/train/trainer.py": TRAINER}
    assert list(training_loop.boundaries(loads(FRAMEWORK, files))) == []


@pytest.mark.parametrize("setting", ["default", "step-wise", "filter"])
@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({}, False),
        ({"PROMPT": "list(chat.values())[row % len(chat)]"}, True),
        ({"TOKENS": "output['response_ids'][::-1]"}, True),
    ],
)
def test_columns_of_other_rows(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """Prompts in the order of the data loader beside responses, and tokens in another order than their masks."""
    target, boundaries = _bound(loads, **broken)
    check_verdict(DAT001, boundaries[setting], setting, target, found=found)
