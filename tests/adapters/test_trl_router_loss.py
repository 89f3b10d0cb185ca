"""The router's loss in TRL's supervised trainer, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.trl import FRAMEWORK, router_loss
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

LIBRARIES = {**overlay(), "transformers.py": TRANSFORMERS}

ROUTER = """
    Plain = SFTTrainer

    class SFTTrainer(Plain):
        aux_loss_enabled = False

        def compute_loss(self, model, inputs, **options):
            loss = super().compute_loss(model, inputs, **options)
            router = model(inputs["input_ids"]).aux_loss if self.aux_loss_enabled else 0.0
            return loss + {times} * model.config.router_aux_loss_coef * router
"""


@pytest.mark.parametrize(("times", "sound"), [("1", True), ("2", False), ("0", False)])
def test_how_often_it_counts(loads: Loads, times: str, sound: bool) -> None:
    """The router's loss counts once, by its coefficient."""
    tree, place = files(), "trl/trainer/sft_trainer.py"
    target = loads(FRAMEWORK, {**tree, place: tree[place] + ROUTER.replace("{times}", times)}, LIBRARIES)
    boundary = the_only(router_loss.boundaries(target))
    check_verdict(CFG004, boundary, "router", target, found=not sound)
    if sound:
        check_calls(target, [boundary])


def test_a_release_without_it(loads: Loads) -> None:
    """A trainer that does not know the router's loss has no such boundary."""
    assert list(router_loss.boundaries(loads(FRAMEWORK, files(), LIBRARIES))) == []
