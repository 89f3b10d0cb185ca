"""Metrics that TRL's pair trainers log in an evaluation, on a specimen of their call shapes."""

import pytest

from adapters.checks import Loads, check_verdict, the_bound
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.pair_evaluation import boundaries
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_logged_elsewhere import LAW as MET006

#: What the specimen's base class has besides its training step.
MODES = """
        state, control = SimpleNamespace(log_history=[]), SimpleNamespace(should_evaluate=False)

        @property
        def mode(self):
            return {mode}

        def prediction_step(self, model, inputs, prediction_loss_only):
            with torch.no_grad():
                return self.compute_loss(model, inputs), None, None

        def log(self, logs):
            mode = self.mode
            means = {n: sum(x) / len(x) for n, x in self._metrics[mode].items()}
            self._metrics[mode].clear()
            names = {n: {prefix} + n if mode == "eval" else n for n in means}
            self.state.log_history.append(logs | {names[n]: mean for n, mean in means.items()})

        def training_step(
"""

SOUND = {"mode": '"train" if self.model.training else "eval"', "prefix": '"eval_"', "mean": "chosen.mean().item()"}


def _bound(loads: Loads, **choices: str) -> tuple[Target, Boundary]:
    parts, tree = SOUND | choices, files()
    base = tree["trl/trainer/base.py"].replace(
        "    import inspect", "    import inspect\n    from types import SimpleNamespace"
    )
    modes = MODES.replace("{mode}", parts["mode"]).replace("{prefix}", parts["prefix"]).rstrip()
    assert "        def training_step(" in base
    tree["trl/trainer/base.py"] = base.replace("        def training_step(", modes.lstrip("\n"))
    source = tree["trl/trainer/dpo_trainer.py"].replace('self._metrics["train"]', "self._metrics[self.mode]")
    assert SOUND["mean"] in source
    tree["trl/trainer/dpo_trainer.py"] = source.replace(SOUND["mean"], parts["mean"])
    target = loads(
        FRAMEWORK,
        {name: text for name, text in tree.items() if "kto" not in name},
        {**overlay(), "transformers.py": TRANSFORMERS},
    )
    boundary = the_bound(boundaries(target))
    return target, boundary


def test_answers_and_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("choices", "law", "sound"),
    [
        ({}, REF001, True),
        ({}, MET006, True),
        ({"mode": '"eval" if self.control.should_evaluate else "train"'}, MET006, False),
        ({"prefix": '"eval/"'}, MET006, False),
        ({"mean": "(chosen * (1 if self.model.training else 2)).mean().item()"}, REF001, False),
    ],
)
def test_evaluation(loads: Loads, choices: dict[str, str], law: Law, sound: bool) -> None:
    """The mode is that of the model, its names start with eval_, and the numbers are those of the batch."""
    target, boundary = _bound(loads, **choices)
    check_verdict(law, boundary, "evaluation", target, found=not sound)
