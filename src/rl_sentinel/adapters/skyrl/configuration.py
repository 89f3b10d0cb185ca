"""SkyRL's validation of a configuration before training."""

import inspect
from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.result_forms import Accepted
from rl_sentinel.adapters.skyrl.arguments import STEP_WISE, config
from rl_sentinel.adapters.skyrl.generator import has_setting
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import Unbindable

PATH = "skyrl.train.utils.utils.validate_cfg"

ESTIMATOR = "trainer.algorithm.advantage_estimator"
LENGTH = "trainer.algorithm.max_seq_len"

#: A model for the critic and a logger that needs no account: without them, another check fails first.
_PLAIN: Settings = {"trainer.logger": "console", "trainer.critic.model.path": "critic"}

FAMILIES: Mapping[str, Settings] = {
    "default": {"trainer.logger": "console"},
    "step-wise grpo": {"trainer.logger": "console", STEP_WISE: True},
    "stepwise_gae": {**_PLAIN, STEP_WISE: True, ESTIMATOR: "gae"},
    "stepwise_reinforce++": {**_PLAIN, STEP_WISE: True, ESTIMATOR: "reinforce++"},
}

#: A run of several turns whose loss divides sums of tokens by a fixed length, which LENGTHS sets or leaves out.
_SUMS: Settings = {
    "trainer.logger": "console",
    "trainer.algorithm.loss_reduction": "seq_mean_token_sum_norm",
    "generator.max_turns": 3,
}
LENGTHS: Mapping[str, Settings] = {"max_seq_len": {**_SUMS, LENGTH: 64}, "no_max_seq_len": _SUMS}

#: The line of releases that compute this length themselves, until January 2026: they have no such option.
_COMPUTED = "algorithm_config.max_seq_len = "

#: A mixture of experts on Megatron that replays the sampler's experts; the other two runs of REPLAYS cannot do so.
_MEGATRON = "trainer.policy.megatron_config"
_REPLAY: Settings = {
    "trainer.logger": "console",
    "trainer.strategy": "megatron",
    f"{_MEGATRON}.moe_enable_routing_replay": True,
    "generator.inference_engine.enable_return_routed_experts": True,
    "generator.inference_engine.distributed_executor_backend": "mp",
    f"{_MEGATRON}.transformer_config_kwargs.moe_router_fusion": False,
}
REPLAYS: Mapping[str, Settings] = {
    "replay": _REPLAY,
    "replay_without_experts": {**_REPLAY, "generator.inference_engine.enable_return_routed_experts": False},
    "replay_with_router_fusion": {**_REPLAY, f"{_MEGATRON}.transformer_config_kwargs.moe_router_fusion": True},
}

_WHY = (
    "trainer.py: the advantage of the last step is broadcast to all steps, but a temporal estimator has one advantage "
    "per token"
)

_BROADCAST = "a temporal estimator's advantages, one per token, cannot be taken from the last step alone"

CLAIMS = claims(_WHY, refused={name: _BROADCAST for name in FAMILIES if name.startswith("stepwise_")})
LENGTH_CLAIMS = claims(
    "config.py, comments of max_seq_len: to be set explicitly for several turns, later for this reduction",
    refused={"no_max_seq_len": "the tokens of several turns are not limited by those of one prompt and response"},
    accepted={"max_seq_len": "it is set explicitly"},
)
REPLAY_CLAIMS = claims(
    "config.py, docstring of moe_enable_routing_replay: together with enable_return_routed_experts; megatron-core, "
    "moe_utils.topk_routing_with_score_function: the fused router returns before it asks for replayed experts",
    refused={
        "replay_without_experts": "the sampler returns no experts to replay",
        "replay_with_router_fusion": "the fused router ignores the experts that are replayed",
    },
    accepted={"replay": "the sampler returns its experts, and the router is not fused"},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the validation under valid configurations and under contradictory ones."""
    yield from _validation(target, FAMILIES, CLAIMS)
    validates = target.has(PATH) and not target.fails(PATH)
    computed = validates and _COMPUTED in inspect.getsource(target.find(PATH))
    for families, claimed in (*(() if computed else ((LENGTHS, LENGTH_CLAIMS),)), (REPLAYS, REPLAY_CLAIMS)):
        if all(has_setting(target, name) for name in next(iter(families.values()))):
            yield from _validation(target, families, claimed)


def _validation(target: Target, families: Mapping[str, Settings], claimed: Claims) -> Iterator[Boundary | Unbound]:
    paths = {path: path for settings in families.values() for path in settings}
    whole = config(paths)
    try:
        whole.check(target)
    except Unbindable as why:
        yield Unbound.because(PATH, "config", why)
        return
    boundary = one_call(
        path=PATH,
        stage="config",
        call=PATH,
        name="answer",
        arguments={"cfg": whole},
        outputs={"accepted": Output("", "", "accepted", form=Accepted())},
        settings=families,
        claims=claimed,
        reach="every run",
    )
    yield from bindable(target, boundary)
