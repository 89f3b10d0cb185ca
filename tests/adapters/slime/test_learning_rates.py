"""slime's learning rates, on a specimen of its call shapes in words of our own."""

from collections.abc import Callable

import pytest
import torch

from adapters.checks import judged_at, outputs_of
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.slime import FRAMEWORK, learning_rates
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

Loads = Callable[..., Target]

MODEL = """
    class OptimizerParamScheduler:
        def __init__(self, *inputs, **options):
            raise RuntimeError("Megatron is not installed")

    def get_optimizer_param_scheduler(args, optimizer):
        samples = args.num_rollout * args.rollout_batch_size * args.n_samples_per_prompt
        end = samples // args.global_batch_size * DECAY
        if args.lr_warmup_fraction is not None:
            warm = args.lr_warmup_fraction * end
        else:
            warm = args.lr_warmup_iters * WARM
        return OptimizerParamScheduler(
            optimizer,
            init_lr=args.lr_warmup_init,
            max_lr=args.lr,
            min_lr=args.min_lr,
            lr_warmup_steps=warm,
            lr_decay_steps=end,
            lr_decay_style=args.lr_decay_style,
        )
"""

SIZE = "args.global_batch_size"


def _bound(loads: Loads, decay: str = SIZE, warm: str = SIZE) -> tuple[Target, dict[str, Boundary]]:
    source = MODEL.replace("DECAY", decay).replace("WARM", warm)
    target = loads(FRAMEWORK, {"slime/backends/megatron_utils/model.py": source})
    made = [one for one in learning_rates.boundaries(target) if isinstance(one, Boundary)]
    return target, {setting: one for one in made for setting in one.settings}


def test_by_hand(loads: Loads) -> None:
    """Half of the peak after one of two updates of warm-up, however that is stated."""
    target, boundaries = _bound(loads)
    check_round_trips(target, {id(b): b for b in boundaries.values()}.values())
    batch = batch_of(torch.ones(3, 1, dtype=torch.bool))
    for setting in ("cosine, warm-up", "cosine, warm-up, by share", "constant, warm-up"):
        rates = outputs_of(target, boundaries[setting], setting, batch)["learning rate"]
        assert rates.tolist() == [0, 0.5, 1]


CASES = [
    ("cosine, no warm-up", {"decay": f"{SIZE} * 2"}),
    ("constant, warm-up", {"warm": "1"}),
    ("cosine, warm-up, by share", {"decay": "1"}),
]


@pytest.mark.parametrize(("setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(
    loads: Loads,
    setting: str,
    broken: dict[str, str],
    found: bool,  # noqa: FBT001 - parametrised
) -> None:
    """A run of twice the length, and a warm-up or a run counted in updates, not in samples."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    judgement = judged_at(REF001, boundaries[setting], setting, target)
    assert judgement.tried > 0
    assert (judgement.found is not None) is found
