"""slime's restarts, and its arguments after other models are loaded, on specimens of its call shapes."""

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of, the_bound
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.checkpoints import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.resume_differs import LAW as RES001

ACTOR = """
    from .checkpoint import load_checkpoint

    class MegatronTrainRayActor:
        def load_other_checkpoint(self, model_tag, path):
            before = {name: getattr(self.args, name) for name in KEPT}
            self.args.load, self.args.finetune = path, True
            if model_tag == "ref" and self.args.ref_ckpt_step is not None:
                self.args.ckpt_step = self.args.ref_ckpt_step
            load_checkpoint(self.model, None, None)
            vars(self.args).update(before)
            self.weights_backuper.backup(model_tag)
"""


def _load(loads: Loads, *kept: str) -> tuple[Target, list[Boundary]]:
    folder = "slime/backends/megatron_utils"
    files = {
        f"{folder}/actor.py": ACTOR.replace("KEPT", repr(kept)),
        f"{folder}/checkpoint.py": "load_checkpoint = print",
    }
    target = loads(FRAMEWORK, files)
    return target, [b for b in boundaries(target) if isinstance(b, Boundary)]


@pytest.mark.parametrize(
    ("kept", "found"),
    [(("load", "finetune", "ckpt_step"), False), (("load", "finetune"), True), (("load", "ckpt_step"), True)],
)
def test_arguments_after_other_models(loads: Loads, kept: tuple[str, ...], found: bool) -> None:
    """A step or an option that stays changed is found."""
    target, (boundary,) = _load(loads, *kept)
    check_verdict(RES001, boundary, "default", target, found=found)


def test_steps_by_hand(loads: Loads) -> None:
    """Run 0 reads the newest step and run 1 its own; two arguments stay changed in both."""
    target, (boundary,) = _load(loads, "ckpt_step")
    check_round_trips(target, [boundary])
    values = outputs_of(target, boundary, "default", batch_of(torch.ones(2, 1, dtype=torch.bool)))
    assert values["step of the run"].tolist() == values["step after other models"].tolist() == [-1, 1]
    assert values["arguments that changed"].tolist() == [1, 1]


def test_revisions_without_a_step_for_the_reference(loads: Loads) -> None:
    """A method that never changes the step has no boundary."""
    actor = ACTOR.replace("KEPT", "[]").replace("ref_ckpt_step", "other")
    target = loads(FRAMEWORK, {"slime/backends/megatron_utils/actor.py": actor.replace("from .checkpoint", "#")})
    assert list(boundaries(target)) == []


OPTIONS = """
    import os

    def slime_validate_args(args):
        saved = args.load is not None and os.path.exists(os.path.join(args.load, "latest_checkpointed_iteration.txt"))
        if args.megatron_to_hf_mode == "bridge" and BRIDGE_STARTS_ANEW:
            saved, args.start_rollout_id = True, 0
        if not saved:
            args.no_load_optim = args.no_load_rng = args.finetune = True
            args.load, args.start_rollout_id = args.ref_load, args.start_rollout_id or 0
        if not args.use_kl_loss and DROPS_OPTIMIZER:
            args.no_load_optim = True
        assert args.rollout_batch_size * args.n_samples_per_prompt % args.global_batch_size == 0
"""


def _restarted(loads: Loads, *, anew: bool = False, drops: bool = False) -> tuple[Target, Boundary]:
    text = OPTIONS.replace("BRIDGE_STARTS_ANEW", str(anew)).replace("DROPS_OPTIMIZER", str(drops))
    target = loads(FRAMEWORK, {"slime/utils/arguments.py": text})
    boundary = the_bound(boundaries(target))
    return target, boundary


@pytest.mark.parametrize(
    ("anew", "drops", "mode", "found"),
    [
        (False, False, "raw", False),
        (False, False, "bridge", False),
        (True, False, "raw", False),
        (True, False, "bridge", True),
        (False, True, "raw", True),
    ],
)
def test_restart(loads: Loads, anew: bool, drops: bool, mode: str, found: bool) -> None:
    """A run that starts anew, or without its optimizer's state, is found in the mode that does so."""
    target, boundary = _restarted(loads, anew=anew, drops=drops)
    check_verdict(RES001, boundary, mode, target, found=found)


def test_restarts_by_hand(loads: Loads) -> None:
    """Run 0 has no checkpoint, and run 1 has saved rollout 1."""
    target, boundary = _restarted(loads, drops=True)
    check_round_trips(target, [boundary])
    values = outputs_of(target, boundary, "raw", batch_of(torch.ones(2, 1, dtype=torch.bool)))
    assert values["next rollout"].tolist() == values["first rollout"].tolist() == [0, 2]
    assert values["options that changed"].tolist() == [0, 1]
