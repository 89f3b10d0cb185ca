"""The learning rates of verl's workers on FSDP, on a specimen of their methods in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, worker_rates
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

SCHEDULES = """
    from math import cos, pi
    from torch.optim.lr_scheduler import LambdaLR

    def get_constant_schedule_with_warmup(optimizer, num_warmup_steps):
        return LambdaLR(optimizer, lambda step: min(1.0, step / num_warmup_steps) if num_warmup_steps else 1.0)

    def get_cosine_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, min_lr_ratio=0.0):
        def rate(step):
            if step < num_warmup_steps:
                return step / num_warmup_steps
            share = (step - num_warmup_steps) / (num_training_steps - num_warmup_steps)
            return min_lr_ratio + (1 - min_lr_ratio) * (1 + cos(pi * share)) / 2
        return LambdaLR(optimizer, rate)
"""

WORKERS = """
    def decorated(method):
        return method

    class ActorRolloutRefWorker:
        @decorated
        def _build_model_optimizer(self, model_path, optim_config, role="actor"):
            from torch import optim

            raise RuntimeError("it loads a model")
            if role == "actor" and optim_config is not None:
                from verl.utils.torch_functional import get_constant_schedule_with_warmup
                from verl.utils.torch_functional import get_cosine_schedule_with_warmup

                made = optim.AdamW(actor_module_fsdp.parameters(), lr=optim_config.lr)
                steps, warm = optim_config.get("total_training_steps", 0), int(optim_config.lr_warmup_steps)
                if optim_config.get("warmup_style", "constant") == "constant":
                    schedule = get_constant_schedule_with_warmup(optimizer=made, num_warmup_steps=WARM)
                elif optim_config.warmup_style == "cosine":
                    schedule = get_cosine_schedule_with_warmup(made, WARM, steps, **FLOOR)
                log_gpu_memory_usage("after the optimizer")
            return actor_module_fsdp, made, schedule, actor_model_config

    class CriticWorker:
        def _build_critic_model_optimizer(self, config):
            raise RuntimeError("it loads a model")
            made = AdamW(critic_module.parameters(), lr=config.optim.lr)
            schedule = get_constant_schedule_with_warmup(made, config.optim.lr_warmup_steps)
            return critic_module, made, schedule
"""

SOUND = {"WARM": "warm", "FLOOR": '{"min_lr_ratio": optim_config.min_lr_ratio}'}

ACTOR, CRITIC = worker_rates.BUILDERS


#: A configuration that offers both schedules.
OFFER = """
    actor_rollout_ref:
      actor:
        optim:
          warmup_style: constant  # select from constant/cosine
"""


def _bound(loads: Loads, config: str = "", **broken: str) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    workers = rewritten(WORKERS, SOUND | broken)
    head = """
    from torch.optim import AdamW
    from verl.utils.torch_functional import get_constant_schedule_with_warmup
"""
    tree = files() | {
        "verl/utils/torch_functional.py": SCHEDULES,
        "verl/workers/fsdp_workers.py": head + workers,
        "verl/trainer/config/ppo_trainer.yaml": config,
    }
    target = loads(FRAMEWORK, tree)
    made = [b for b in worker_rates.boundaries(target) if isinstance(b, Boundary)]
    return target, {(b.path, s): b for b in made for s in b.settings}


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Both kinds of the actor, and the one that the critic knows; the models before are not loaded."""
    target, mine = _bound(loads)
    kinds = {"constant, no warm-up", "constant, warm-up"}
    actor = {(ACTOR, s) for s in kinds | {"cosine, no warm-up", "cosine, warm-up"}}
    assert set(mine) == actor | {(CRITIC, s) for s in kinds}
    check_round_trips(target, mine.values())
    assert answering(mine, target) == []


CASES = [
    ("constant, warm-up", {"WARM": "0"}),
    ("cosine, warm-up", {"WARM": "0"}),
    ("cosine, no warm-up", {"FLOOR": "{}"}),
]


@pytest.mark.parametrize(("setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """Settings that never reach the schedule: the warm-up, and the lowest rate."""
    target, mine = _bound(loads, **(broken if found else {}))
    check_verdict(REF001, mine[ACTOR, setting], setting, target, found=found)


def test_a_schedule_that_is_offered_but_never_built(loads: Loads) -> None:
    """The critic's schedule is constant whatever the configuration says; the actor's is the one that it names."""
    target, mine = _bound(loads, OFFER)
    check_verdict(REF001, mine[CRITIC, "cosine, warm-up"], "cosine, warm-up", target, found=True)
    check_verdict(REF001, mine[ACTOR, "cosine, warm-up"], "cosine, warm-up", target, found=False)
