"""SkyRL's rollout and the filters of its prompts, on a specimen of its call shapes in words of our own."""

from collections.abc import Mapping

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.skyrl import FRAMEWORK, async_rollout, prompt_filters, rollout
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONFIG = """
    from types import SimpleNamespace

    def SkyRLTrainConfig():
        trainer = SimpleNamespace(train_batch_size=8, policy_mini_batch_size=8, critic_mini_batch_size=8)
        return SimpleNamespace(trainer=trainer, generator=SimpleNamespace(n_samples_per_prompt=5))
"""

BATCH = """
    class TrainingInputBatch(dict):
        metadata = None
"""

PREPROCESS = """
    import torch

    def convert_prompts_responses_to_batch_tensors(
        tokenizer, prompts, responses, rewards, loss_masks, logprobs=None
    ):
        width, total = max(map(len, responses)), max(len(p) + len(r) for p, r in zip(prompts, responses))

        def right(rows, size):
            return torch.tensor([[0] * (size - len(row)) + list(row) for row in rows])

        sequences = right([p + r for p, r in zip(prompts, responses)], total)
        masks = right([[1] * len(r) for r in responses], width)
        sampled = right(logprobs, width) if logprobs else None
        return sequences, None, masks, right(rewards, width).float(), right(loss_masks, width).float(), sampled
"""

TRAINER = """
    import torch
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
    from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors

    class RayPPOTrainer:
        def compute_advantages_and_returns(self, data): return data

        def postprocess_generator_output(self, generator_output, uids):
            paid = [
                [0.0] * (len(r) - 1) + [x]
                for r, x in zip(generator_output["response_ids"], generator_output["rewards"])
            ]
            return {**generator_output, "rewards": paid}, uids

        def convert_to_training_input(self, generator_output, uids):
            lists = [generator_output[k] for k in ("prompt_token_ids", "response_ids", "rewards", "loss_masks")]
            made = convert_prompts_responses_to_batch_tensors(
                self.tokenizer, *lists, generator_output["rollout_logprobs"]
            )
            names = ("sequences", "attention_mask", "response_mask", "rewards", "loss_mask", "rollout_logprobs")
            missing = -len(uids) % self.dispatch.get_lcm_dp_size()
            rows = [*range(len(uids)), *[0] * missing]
            batch = TrainingInputBatch({k: v[rows] for k, v in zip(names, made) if v is not None})
            batch["loss_mask"][len(uids):] *= PADDING
            batch.metadata = {"uids": uids + ["pad"] * missing}
            return batch
"""

UTILS = """
    import numpy as np

    def zero_variance_filter(rewards, uids, loss_masks=None):
        groups = {}
        for reward, uid, mask in zip(rewards, uids, loss_masks):
            if sum(mask) or COUNTS_DEAD:
                groups.setdefault(uid, []).append(reward)
        return [i for i, uid in enumerate(uids) if len(groups.get(uid, [])) < 2 or len(set(groups[uid])) > 1]

    def handle_filter_sampling(generator_output, uids, sampling_config, collected_state):
        of = lambda uid: [r for r, u in zip(generator_output["rewards"], uids) if u == uid]
        rows = [i for i, uid in enumerate(uids) if np.std(of(uid)) > 0]
        kept = {k: [v[i] for i in rows] for k, v in generator_output.items() if isinstance(v, list)}
        collected_state["collected_generator_output"] = kept
        return generator_output, uids, True, collected_state
"""

GENERATORS = """
    def concatenate_generator_outputs(generator_outputs):
        first = generator_outputs[0]
        return {k: sum((one[k] for one in ORDER), []) for k in first if isinstance(first[k], list)}
"""

ASYNC = """
    from dataclasses import dataclass
    from skyrl.train.generators.utils import concatenate_generator_outputs
    from skyrl.train.trainer import RayPPOTrainer
    from skyrl.train.utils.trainer_utils import zero_variance_filter

    @dataclass
    class GeneratedOutputGroup:
        generator_output: dict
        uid: str
        step: int

    class FullyAsyncRayPPOTrainer(RayPPOTrainer):
        def _should_keep_group(self, group):
            rewards = [r[WHOLE] if isinstance(r, list) else r for r in group.generator_output["rewards"]]
            uids = [group.uid] * len(rewards)
            return bool(zero_variance_filter(rewards, uids, loss_masks=group.generator_output["loss_masks"]))

        def convert_generation_group_mini_batch_to_training_input(self, kept, dropped=()):
            groups = [*kept, *dropped] if TRAINS_DROPPED else kept
            uids = [g.uid for g in groups for _ in g.generator_output["response_ids"]]
            output, uids = self.postprocess_generator_output(
                concatenate_generator_outputs([g.generator_output for g in groups]), uids
            )
            return self.convert_to_training_input(output, uids)
"""


#: What the sound specimen has in the places that a test breaks.
SOUND = {
    "padding": "0",
    "counts_dead": "False",
    "order": "generator_outputs",
    "trains_dropped": "False",
    "whole": "-1",
}


def _target(loads: Loads, *more: Mapping[str, str], **broken: str) -> Target:
    parts = SOUND | broken
    files = {
        "skyrl/train/fully_async_trainer.py": ASYNC,
        "skyrl/backends/__init__.py": "raise RuntimeError('an engine was started')",
        "skyrl/backends/skyrl_train/training_batch.py": BATCH,
        "skyrl/train/config.py": CONFIG,
        "skyrl/train/dataset/preprocess.py": PREPROCESS,
        "skyrl/train/trainer.py": TRAINER,
        "skyrl/train/utils/trainer_utils.py": UTILS,
        "skyrl/train/generators/utils.py": GENERATORS,
    }
    for others in more:
        files |= others
    for name, part in parts.items():
        files = {path: source.replace(name.upper(), part) for path, source in files.items()}
    return loads(FRAMEWORK, files)


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    made = [
        one
        for module in (rollout, async_rollout, prompt_filters)
        for one in module.boundaries(target)
        if isinstance(one, Boundary)
    ]
    return {(one.path.rpartition(".")[2], setting): one for one in made for setting in one.settings}


def test_all_boundaries_answer(loads: Loads) -> None:
    target = _target(loads)
    boundaries = _bound(target)
    assert len(boundaries) == 10
    assert answering(boundaries, target) == []


def test_release_without_log_probs_of_the_engine(loads: Loads) -> None:
    """What does not carry them is compared without them."""
    first = {
        "skyrl/train/generators/base.py": "class GeneratorOutput(dict):\n    response_ids: list",
        "skyrl/train/trainer.py": TRAINER.replace('generator_output["rollout_logprobs"]', "None"),
        "skyrl/train/generators/utils.py": GENERATORS.replace("for k in first", "for k in list(first)[:-1]"),
    }
    target = _target(loads, first)
    made = [one for one in rollout.boundaries(target) if isinstance(one, Boundary)]
    assert [name for one in made for name in one.outputs if name == "rollout_logprob"] == []
    pairs = {(one.path, setting): one for one in made for setting in one.settings}
    assert len(pairs) == 3
    assert answering(pairs, target) == []


@pytest.mark.slow
def test_round_trips(loads: Loads) -> None:
    target = _target(loads)
    check_round_trips(target, _bound(target).values())


CASES = [
    (PLC004, "convert_to_training_input", "two workers", {"padding": "1"}),
    (PLC004, "concatenate_generator_outputs", "default", {"order": "generator_outputs[::-1]"}),
    (
        PLC004,
        "convert_generation_group_mini_batch_to_training_input",
        "some thrown away",
        {"trains_dropped": "True"},
    ),
    (REF001, "zero_variance_filter", "default", {"counts_dead": "True"}),
    (REF001, "zero_variance_filter", "a group", {"counts_dead": "True"}),
    (REF001, "zero_variance_filter", "a group, reward per token", {"whole": "0"}),
]


@pytest.mark.parametrize(("law", "name", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(  # noqa: PLR0913 - parametrised
    loads: Loads, law: Law, name: str, setting: str, broken: dict[str, str], found: bool
) -> None:
    """A row of padding that trains, prompts in another order, a rejected response that counts, a token's reward."""
    target = _target(loads, **(broken if found else {}))
    check_verdict(law, _bound(target)[name, setting], setting, target, found=found)
