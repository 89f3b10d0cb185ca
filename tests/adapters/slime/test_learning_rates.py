"""slime's learning rates, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, by_setting, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.slime import FRAMEWORK, learning_rates
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.resume_differs import LAW as RES001

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
    return target, by_setting(learning_rates.boundaries(target))


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
def test_found_where_broken_alone(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """A run of twice the length, and a warm-up or a run counted in updates, not in samples."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(REF001, boundaries[setting], setting, target, found=found)


RESTART = """
    from .checkpoint import load_checkpoint, clear_memory

    def setup_model_and_optimizer(args, role):
        raise RuntimeError("Megatron is not installed")

    def initialize_model_and_optimizer(args, role="actor"):
        model, optimizer, schedule = setup_model_and_optimizer(args, role)
        iteration, _ = load_checkpoint(model, optimizer, schedule, checkpointing_context={})
        clear_memory()
        AFTERWARDS
        return model, optimizer, schedule, iteration
"""

ONCE_MORE = "schedule.step(increment=iteration * args.global_batch_size)"
ANEW = "iteration = 0"


def _restarted(loads: Loads, afterwards: str) -> tuple[Target, Boundary]:
    folder = "slime/backends/megatron_utils"
    source = MODEL.replace("DECAY", SIZE).replace("WARM", SIZE) + RESTART.replace("AFTERWARDS", afterwards)
    target = loads(
        FRAMEWORK, {f"{folder}/model.py": source, f"{folder}/checkpoint.py": "load_checkpoint = clear_memory = print"}
    )
    made = [one for one in learning_rates.boundaries(target) if isinstance(one, Boundary)]
    return target, next(one for one in made if one.path == learning_rates.INITIALIZE)


def test_restart_by_hand(loads: Loads) -> None:
    """A schedule that is advanced twice is at the peak after one of two updates of warm-up."""
    target, boundary = _restarted(loads, ONCE_MORE)
    check_round_trips(target, [boundary])
    values = outputs_of(target, boundary, "warm-up", batch_of(torch.ones(3, 1, dtype=torch.bool)))
    assert values["learning rate"].tolist() == [0, 0.5, 1]
    assert values["learning rate after a restart"].tolist() == [0, 1, 1]
    assert values["finished updates after a restart"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("setting", ["cosine", "warm-up"])
@pytest.mark.parametrize(("afterwards", "found"), [("pass", False), (ONCE_MORE, True), (ANEW, True)])
def test_restarts(loads: Loads, setting: str, afterwards: str, found: bool) -> None:
    """A schedule that runs ahead is found, and a count of updates that starts again."""
    target, boundary = _restarted(loads, afterwards)
    check_verdict(RES001, boundary, setting, target, found=found)


def test_loading_by_megatron_has_no_restart(loads: Loads) -> None:
    """The first releases initialize without loading."""
    _, boundaries = _bound(loads)
    assert learning_rates.INITIALIZE not in {one.path for one in boundaries.values()}
