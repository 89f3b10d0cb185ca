"""SkyRL's evaluation and the prompts of its steps, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, rewritten
from adapters.test_skyrl_rollout import BATCH, CONFIG, PREPROCESS
from rl_sentinel.adapters.skyrl import FRAMEWORK, evaluation, prompts
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

UTILS = """
    def get_metrics_from_generator_output(generator_output, uids):
        rewards = generator_output["rewards"]
        if isinstance(rewards[0], list):
            rewards = [one[-1] for one in rewards]
        solved = {}
        for uid, reward in zip(uids, rewards):
            solved[uid] = SOLVED
        mean = sum(rewards) / len(rewards)
        positive = sum(max(one, 0.0) for one in rewards) / len(rewards)
        passed = sum(solved.values()) / len(solved)
        return {"avg_score": mean, "pass_at_n": passed, "mean_positive_reward": positive}
"""

TRAINER = """
    from skyrl.train.generators.utils import get_metrics_from_generator_output

    class RayPPOTrainer:
        def compute_advantages_and_returns(self, data): return data

        async def eval(self):
            rewards, uids = [], []
            for batch in self.eval_dataloader:
                count = self.cfg.generator.eval_n_samples_per_prompt
                made, own = self._prepare_generator_input(count, batch, {})
                answer = await self.generate(made)
                rewards, uids = rewards + answer["rewards"], uids + own
            found = get_metrics_from_generator_output({"rewards": rewards}, uids)
            keys = {"avg_score": "avg_score", "mean_positive_reward": "mean_positive_reward"}
            keys[f"pass_at_{count}"] = "pass_at_n"
            return {f"eval/{of}/{k}": found[name] for of in ("all", "task") for k, name in keys.items()}

        def _prepare_generator_input(self, n_samples_per_prompt, prompts, sampling_params):
            rows = [prompt for prompt in prompts for _ in range(n_samples_per_prompt)]
            names = [prompt["env_class"] for prompt in prompts for _ in range(COUNT)]
            made = {"prompts": [one["prompt"] for one in rows], "env_classes": names}
            made["env_extras"] = [dict(one["env_extras"]) for one in rows]
            return made, UIDS

        def _remove_tail_data(self, entries):
            workers = self.dispatch.get_lcm_dp_size()
            return entries[: len(entries) * SAMPLES // workers * workers // (SAMPLES)]
"""

STEPS = """
    from types import SimpleNamespace

    from skyrl.train.generators.utils import get_metrics_from_generator_output

    async def evaluate_step_wise(batches, generator, cfg, step, tokenizer):
        count, rewards, uids = cfg.generator.eval_n_samples_per_prompt, [], []
        for prompts in batches:
            rows = [prompt for prompt in prompts for _ in range(count)]
            own = [SimpleNamespace(instance_id=prompt["uid"]) for prompt in rows]
            answer = await generator.generate({"prompts": [row["prompt"] for row in rows], "trajectory_ids": own})
            chosen = [n for n, last in enumerate(answer["is_last_step"]) if LAST]
            rewards += [answer["rewards"][n] for n in chosen]
            uids += [answer["trajectory_ids"][n].instance_id for n in chosen]
        found = get_metrics_from_generator_output({"rewards": rewards}, uids)
        keys = {"avg_score": "avg_score", "mean_positive_reward": "mean_positive_reward"}
        keys[f"pass_at_{count}"] = "pass_at_n"
        return {f"eval/{of}/{k}": found[name] for of in ("all", "task") for k, name in keys.items()}
"""

SOLVED = "solved.get(uid, False) or reward > 0"
SAMPLES = "self.cfg.generator.n_samples_per_prompt"


SOUND = {
    "SOLVED": SOLVED,
    "COUNT": "n_samples_per_prompt",
    "SAMPLES": SAMPLES,
    "LAST": "last",
    "UIDS": '[one["uid"] for one in rows]',
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    words = SOUND | broken
    files = {
        "skyrl/backends/__init__.py": "raise RuntimeError('an engine was started')",
        "skyrl/backends/skyrl_train/training_batch.py": BATCH,
        "skyrl/train/config.py": CONFIG.replace(
            "n_samples_per_prompt=5", "n_samples_per_prompt=5, eval_sampling_params={}, step_wise_trajectories=False"
        ),
        "skyrl/train/dataset/preprocess.py": PREPROCESS,
        "skyrl/train/trainer.py": rewritten(TRAINER, words),
        "skyrl/train/evaluate.py": rewritten(STEPS, words),
        "skyrl/train/generators/utils.py": rewritten(UTILS, words),
    }
    target = loads(FRAMEWORK, files)
    made = [one for module in (evaluation, prompts) for one in module.boundaries(target)]
    bound = [one for one in made if isinstance(one, Boundary)]
    return target, {f"{b.path.rpartition('.')[2]}, {next(iter(b.settings))}": b for b in bound}


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert len(boundaries) == 6
    named = {(name, name.partition(", ")[2]): boundary for name, boundary in boundaries.items()}
    assert answering(named, target) == []


CASES = [
    (MET001, "get_metrics_from_generator_output, rewards per response", {"SOLVED": "reward > 0"}),
    (MET001, "get_metrics_from_generator_output, rewards per token", {"SOLVED": "reward > 0"}),
    (MET001, "eval, default", {"SOLVED": "reward > 0"}),
    (MET001, "evaluate_step_wise, default", {"LAST": "True"}),
    (PLC004, "_prepare_generator_input, default", {"COUNT": SAMPLES}),
    (DAT002, "_remove_tail_data, default", {"SAMPLES": "1"}),
]


@pytest.mark.parametrize(
    ("uids", "found"),
    [
        ("[f'random-{one[\"uid\"]}' for one in rows]", False),
        ("[f'random-{one[\"uid\"]}' for _ in range(n_samples_per_prompt) for one in prompts]", True),
        ("['random' for one in rows]", True),
    ],
)
def test_random_uids(loads: Loads, uids: str, found: bool) -> None:
    """Before October 2025, the trainer makes a text for each prompt: in the order of the rows, in another, or once."""
    target, boundaries = _bound(loads, UIDS=uids)
    check_verdict(PLC004, boundaries["_prepare_generator_input, default"], "default", target, found=found)


@pytest.mark.parametrize(("law", "name", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, name: str, broken: dict[str, str], found: bool) -> None:
    """The last response alone decides, every step counts, environments of as many samples as training has, and more."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundaries[name], name.partition(", ")[2], target, found=found)
