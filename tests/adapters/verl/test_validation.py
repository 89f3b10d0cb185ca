"""verl's metrics of a validation, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, rewritten
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, validation
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001

METRICS = """
    from collections import Counter, defaultdict

    import numpy as np

    def bootstrap_metric(data, subset_size, reduce_fns, n_bootstrap=1000, seed=42):
        rows = ROWS
        drawn = [[reduce(np.array(data, dtype=object)[own]) for own in rows] for reduce in reduce_fns]
        return [(float(np.mean(one)), float(np.std(one))) for one in drawn]

    def vote(answers):
        (most, _), *_ = Counter(one["pred"] for one in answers).most_common()
        return next(one["val"] for one in answers if one["pred"] == most)

    def process_validation_metrics(data_sources, PROMPTS, infos_dict, seed=42):
        samples = defaultdict(list)
        for row, prompt in enumerate(PROMPTS):
            samples[prompt].append(row)
        kept = defaultdict(list)
        for rows in samples.values():
            values = [infos_dict["reward"][row] for row in rows]
            if len(rows) < LEAST:
                continue
            kept[f"mean@{len(rows)}"].append(np.mean(values))
            kept[f"std@{len(rows)}"].append(np.std(values))
            for n in sorted({2, len(rows)}):
                best, worst = bootstrap_metric(values, SIZE, [np.max, np.min], seed=seed)
                kept[f"best@{n}/mean"].append(best[0])
                kept[f"worst@{n}/mean"].append(worst[0])
                if "pred" in infos_dict:
                    answers = [{"pred": infos_dict["pred"][row], "val": infos_dict["reward"][row]} for row in rows]
                    kept[f"maj@{n}/mean"].append(bootstrap_metric(answers, n, [vote], seed=seed)[0][0])
        return {data_sources[0]: {"reward": {name: OVER(numbers) for name, numbers in kept.items()}}}
"""

#: The rows of all draws: at once, or one draw at a time, as the release does it.
ROWS = (
    "np.random.choice(len(data), size=(n_bootstrap, subset_size), replace=True)",
    "[np.random.choice(len(data), size=subset_size, replace=True) for _ in range(n_bootstrap)]",
)

CALLER = """
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    class RayPPOTrainer:
        def _val_metrics_update(self, data_sources, sample_uids, infos, sample_turns):
            found = process_validation_metrics(data_sources, sample_uids, infos)
            return {f"val-core/task/reward/{name}": value for name, value in found["task"]["reward"].items()}
"""


SOUND = {"PROMPTS": "sample_uids", "SIZE": "n", "OVER": "np.mean", "ROWS": ROWS[0], "LEAST": "1"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    tree = files()
    tree["verl/trainer/ppo/metric_utils.py"] = rewritten(METRICS, SOUND | broken)
    tree["verl/trainer/ppo/ray_trainer.py"] = CALLER
    target = loads(FRAMEWORK, tree)
    made = [one for one in validation.boundaries(target) if isinstance(one, Boundary)]
    return target, {(one.path.rpartition(".")[2], next(iter(one.settings))): one for one in made}


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert sorted({name for name, _ in boundaries}) == [
        "_val_metrics_update",
        "bootstrap_metric",
        "process_validation_metrics",
    ]
    assert answering(boundaries, target) == []


@pytest.mark.parametrize("name", ["process_validation_metrics", "_val_metrics_update", "bootstrap_metric"])
@pytest.mark.parametrize("rows", ROWS)
def test_sound(loads: Loads, name: str, rows: str) -> None:
    """The mean over prompts of draws with replacement is what it says."""
    target, boundaries = _bound(loads, ROWS=rows)
    for (own, setting), boundary in boundaries.items():
        if own == name:
            check_verdict(MET001, boundary, setting, target, found=False)


@pytest.mark.parametrize("broken", [{"PROMPTS": "sample_inputs"}, {"SIZE": "len(rows)"}, {"OVER": "np.max"}])
def test_found(loads: Loads, broken: dict[str, str]) -> None:
    """Prompts found by a text that two of them share, the best of all for the best of two, a maximum over prompts."""
    target, boundaries = _bound(loads, **broken)
    boundary = boundaries["process_validation_metrics", "rewards and answers"]
    check_verdict(MET001, boundary, "rewards and answers", target, found=True)


@pytest.mark.parametrize("name", ["process_validation_metrics", "_val_metrics_update"])
@pytest.mark.parametrize("broken", [{"LEAST": "2"}, {"OVER": "np.max"}])
def test_one_sample_per_prompt(loads: Loads, name: str, broken: dict[str, str]) -> None:
    """A mean that is not logged for prompts with one sample, and a maximum over prompts."""
    target, boundaries = _bound(loads, **broken)
    setting = "one sample per prompt"
    check_verdict(MET001, boundaries[name, setting], setting, target, found=True)
