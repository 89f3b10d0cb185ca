"""AReaL's checkpoints on Megatron, on a specimen of its manager in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, judged_at, rewritten, the_only
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.checkpoints import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.resume_differs import LAW as RES001

MANAGER = """
    save_dist_checkpointing = load_dist_checkpointing = None

    class MegatronCheckpointManager:
        def __init__(self, model, optimizer, scheduler):
            self.model, self.optimizer = model[0], optimizer

        def template(self, loads=False):
            weights = self.model.sharded_state_dict()
            return {"model": weights, "optimizer": self.optimizer.sharded_state_dict(weights, is_loading=loads)}

        def save_checkpoint(self, path):
            save_dist_checkpointing(sharded_state_dict=self.template(), ckpt_path=path)

        def load_checkpoint(self, path):
            state = load_dist_checkpointing(sharded_state_dict=self.template(LOADS), ckpt_dir=path)
            self.optimizer.load_state_dict(state["optimizer"])
            self.model.load_state_dict(state["model"] if RESTORED else self.template()["model"])
"""

SOUND = {"LOADS": "True", "RESTORED": "True"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(MANAGER, SOUND | broken)
    target = loads(FRAMEWORK, {"areal/__init__.py": "", "areal/engine/megatron_utils/checkpointer.py": source})
    return target, the_only(boundaries(target))


def test_sound(loads: Loads) -> None:
    target, boundary = _bound(loads)
    assert answering({("checkpoint", "default"): boundary}, target) == []
    check_verdict(RES001, boundary, "default", target, found=False)
    check_round_trip(target, boundary)


@pytest.mark.parametrize(("broken", "output"), [({"LOADS": "False"}, "exp_avg"), ({"RESTORED": "False"}, "weight")])
def test_broken(loads: Loads, broken: dict[str, str], output: str) -> None:
    """A template without the moments, and weights that are not restored."""
    target, boundary = _bound(loads, **broken)
    found = judged_at(RES001, boundary, "default", target).found
    assert found is not None
    assert found.expectation.output == f"{output} after a restart"
