"""TRL's online DPO as a loop that samples, scores and trains in one method, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, answering, by_setting, check_verdict
from adapters.trl_loops_specimen import LOOP, libraries
from adapters.trl_specimen import filled
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, online_dpo_loop
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_logged_elsewhere import LAW as MET006

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class OnlineDPOConfig:
        output_dir: str = ""
        temperature: float = 0.7
        per_device_train_batch_size: int = 8
        gradient_accumulation_steps: int = 1
        num_mini_batches: int = 1
        num_epochs: int = 4
        beta: float = 0.05
        missing_eos_penalty: object = None
"""

TRAINER = """
    import gc

    import torch
    from torch.nn.functional import logsigmoid
    from trl.trainer.loop import Loop

    class OnlineDPOTrainer(Loop):
        num_generation_per_prompt = 2

        def __init__(self, config, tokenizer, model, ref_model, reward_model, train_dataset):
            self.prepare(config, model, ref_model, reward_model)

        def train(self):
            args = self.args
            for _ in range(args.num_total_batches):
                queries = next(iter(self.dataloader))["input_ids"].repeat(self.num_generation_per_prompt, 1)
                pairs = len(queries) // 2
                with torch.no_grad():
                    ids, context, answer, mask, last, scores, old, ref = self.sample(queries)
                new = torch.where(mask, self.forward(self.policy, ids, context, answer), 1.0)
                ratios = ((new - ref) * mask).sum(1)
                first = scores[:pairs] {better} scores[pairs:]
                chosen = torch.where(first, ratios[:pairs], ratios[pairs:])
                rejected = torch.where(first, ratios[pairs:], ratios[:pairs])
                self.accelerator.backward(-logsigmoid(args.beta * (chosen - rejected)).mean())
                logs = {"rewards/margins": args.beta * (chosen - rejected).detach().mean().item()}
                gc.collect()
                self.state.global_step += {counted}
                self.log(logs)
"""

SOUND = {"better": ">=", "counted": "1"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    tree = {"trl/__init__.py": "", "trl/trainer/loop.py": LOOP, "trl/trainer/online_dpo_config.py": CONFIG}
    tree |= {"trl/trainer/online_dpo_trainer.py": filled(TRAINER, {**SOUND, **broken})}
    target = loads(FRAMEWORK, tree, libraries())
    return target, by_setting(online_dpo_loop.boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert set(boundaries) == {"sampled pairs", "logged steps"}
    assert answering({(name, name): one for name, one in boundaries.items()}, target) == []


CASES = [(REF001, "sampled pairs", {"better": "<"}), (MET006, "logged steps", {"counted": "2"})]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """The worse response preferred, and a step that counts twice."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundaries[setting], setting, target, found=found)
