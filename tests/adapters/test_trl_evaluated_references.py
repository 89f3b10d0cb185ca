"""TRL's precomputed reference log-probs of an evaluated data set, on a specimen of its call shapes."""

import pytest

from adapters.checks import Loads, check_verdict, the_bound
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.evaluated_references import boundaries
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

#: What the specimen's trainer has besides its loss.
EVALUATION = """
        state = SimpleNamespace(global_step=0, log_history=[])

        def prediction_step(self, model, inputs, prediction_loss_only):
            return inputs["ref_chosen_logps"].mean(), None, None

        def evaluate(self, rows):
            {check}
            batch = self.data_collator(rows)
            with torch.no_grad():
                chosen, rejected = self._scores(self.model, batch).chunk(2)
            batch |= {"ref_chosen_logps": chosen, "ref_rejected_logps": {rejected}}
            return self.prediction_step(self.model, batch, True)
"""

SOUND = {
    "check": 'if self.state.global_step: raise ValueError("without a reference model, evaluate before training")',
    "rejected": "rejected",
}


def _bound(loads: Loads, **choices: str) -> tuple[Target, Boundary]:
    tree, evaluation = files(), EVALUATION
    for name, part in (SOUND | choices).items():
        evaluation = evaluation.replace("{" + name + "}", part)
    tree["trl/trainer/dpo_trainer.py"] = (
        "\n    from types import SimpleNamespace\n" + tree["trl/trainer/dpo_trainer.py"].rstrip() + "\n" + evaluation
    )
    config = tree["trl/trainer/dpo_config.py"]
    tree["trl/trainer/dpo_config.py"] = config.rstrip() + "\n        precompute_ref_log_probs: bool = False\n"
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": TRANSFORMERS})
    return target, the_bound(boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("choices", "setting", "sound"),
    [
        ({}, "evaluated before training", True),
        ({}, "evaluated after a step", True),
        ({"check": "pass"}, "evaluated after a step", False),
        ({"check": "pass"}, "evaluated before training", True),
        ({"rejected": "chosen"}, "evaluated before training", False),
    ],
)
def test_references(loads: Loads, choices: dict[str, str], setting: str, sound: bool) -> None:
    """The reference is the initial model; a data set that comes too late for it is refused."""
    target, boundary = _bound(loads, **choices)
    check_verdict(PLC004, boundary, setting, target, found=not sound)
