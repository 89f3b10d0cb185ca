"""The learning rates that verl's workers log, on specimens of FSDP's and Megatron's workers in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_calls
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, logged_rates
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

WORKERS = """
    from functools import wraps
    from types import SimpleNamespace

    import psutil
    from codetiming import Timer

    def get_torch_device():
        raise RuntimeError("no accelerator")

    def annotated(method):
        @wraps(method)
        def profiled(self, data):
            raise RuntimeError("no profiler")
        return profiled

    def logged(metrics):
        return SimpleNamespace(meta_info={"metrics": metrics})

    class ActorRolloutRefWorker:
        @annotated
        def update_actor(self, data):
            data = data.to(get_torch_device().current_device())
            with self.ulysses_sharding_manager, Timer(name="update", logger=None) as timer:
                metrics = self.actor.update_policy(data=self.ulysses_sharding_manager.preprocess_data(data=data))
            tokens = data.meta_info["global_token_num"]
            achieved, peak = self.flops_counter.estimate_flops(tokens, timer.last)
            metrics["mfu"] = achieved * self.config.actor.ppo_epochs / peak
            metrics["memory"] = get_torch_device().max_memory_allocated() + psutil.virtual_memory().used
            BEFORE
            metrics["actor/lr"] = RATE
            AFTER
            return logged(metrics)

    class CriticWorker:
        def update_critic(self, data):
            metrics = self.critic.update_critic(data=data)
            BEFORE
            metrics["critic/lr"] = RATE
            AFTER
            return logged(metrics)
"""

#: Folder of workers -> how they read the rate, and how their schedules step.
KINDS = {
    "fsdp": ("self.ROLE_lr_scheduler.get_last_lr()[0]", "self.ROLE_lr_scheduler.step()"),
    "megatron": ('self.ROLE_optimizer.param_groups[0]["lr"]', "self.ROLE_optimizer_scheduler.step(1)"),
}


def _bound(loads: Loads, kind: str, *, early: bool) -> tuple[Target, list[Boundary]]:
    rate, step = KINDS[kind]
    words = {"BEFORE": step if early else "pass", "RATE": rate, "AFTER": "pass" if early else step}
    actor, critic = (rewritten(part, words) for part in WORKERS.split("    class CriticWorker:"))
    source = actor.replace("ROLE", "actor") + "    class CriticWorker:" + critic.replace("ROLE", "critic")
    target = loads(FRAMEWORK, files() | {f"verl/workers/{kind}_workers.py": source})
    return target, [b for b in logged_rates.boundaries(target) if isinstance(b, Boundary)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("early", [False, True], ids=["sound", "the schedule steps before the log"])
def test_rate_of_the_update(loads: Loads, kind: str, early: bool) -> None:
    target, found = _bound(loads, kind, early=early)
    assert [boundary.path.rpartition(".")[2] for boundary in found] == ["update_actor", "update_critic"]
    check_calls(target, found)
    for boundary in found:
        check_verdict(REF001, boundary, "warm-up", target, found=early)
