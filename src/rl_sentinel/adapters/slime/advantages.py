"""slime's advantages: each estimator, the path from raw rewards through group normalization, and GAE alone."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachRow, Object, Table
from rl_sentinel.adapters.kit.forms import Padded, Ragged, ZeroPadded
from rl_sentinel.adapters.kit.requirements import group_sizes, prompts_are_contiguous
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, knobs
from rl_sentinel.adapters.slime.arguments import (
    LOSS,
    LOSS_MASKS,
    MASKS,
    OPTIONAL,
    PARALLEL_STATE,
    PPO,
    RESPONSE_LENGTHS,
    REWARDS,
    TOTAL_LENGTHS,
    loss_source,
    options,
    samples,
)
from rl_sentinel.adapters.slime.fakes import compute_advantages, takes_data
from rl_sentinel.adapters.slime.kl import default_kind
from rl_sentinel.adapters.slime.samples import normalization_method, sample
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Inputs

PATH = f"{LOSS}.compute_advantages_and_returns"

#: Arguments of every run, at slime's defaults.
DEFAULTS = {
    "use_rollout_logprobs": False,
    "custom_advantage_function_path": None,
    "normalize_advantages": False,
    "qkv_format": "thd",
    "use_opd": False,
    "gamma": 1.0,
    "lambd": 1.0,
}

_DOC = "loss.py, compute_advantages_and_returns, and the estimator in ppo_utils.py"
_GROUPS = "rollout.py, _post_process_rewards: mean and deviation over n_samples_per_prompt rewards each"

_TEMPORAL = claims(_DOC, credit="temporal", scope="sequence")
_WHITENED = claims(f"{_DOC}: whitened over the data-parallel group", credit="temporal", scope="batch")
_OUTCOME = claims(_DOC, credit="outcome", scope="sequence")
_HAS_KL = claims("arguments.py: --kl-coef, KL penalty coefficient for reward shaping", knobs={"kl_coef": (0.05, 0.5)})

#: Setting -> the command line, and the estimator's claims.
FAMILIES: Mapping[str, tuple[Settings, Claims]] = {
    "ppo": ({"advantage_estimator": "ppo", "kl_coef": 0.05}, _TEMPORAL | _HAS_KL),
    "ppo, coefficient 0": ({"advantage_estimator": "ppo", "kl_coef": 0.0}, _TEMPORAL),
    "ppo, discounted": ({"advantage_estimator": "ppo", "kl_coef": 0.05, "gamma": 0.9, "lambd": 0.95}, _TEMPORAL),
    "ppo, whitened": ({"advantage_estimator": "ppo", "kl_coef": 0.05, "normalize_advantages": True}, _WHITENED),
    "grpo": ({"advantage_estimator": "grpo", "kl_coef": 0.0}, _OUTCOME),
    "gspo": ({"advantage_estimator": "gspo", "kl_coef": 0.0}, _OUTCOME),
    "cispo": ({"advantage_estimator": "cispo", "kl_coef": 0.0}, _OUTCOME),
    "reinforce_plus_plus": ({"advantage_estimator": "reinforce_plus_plus", "kl_coef": 0.05}, _TEMPORAL | _HAS_KL),
    "reinforce_plus_plus, whitened": (
        {"advantage_estimator": "reinforce_plus_plus", "kl_coef": 0.05, "normalize_advantages": True},
        _WHITENED,
    ),
    "reinforce_plus_plus_baseline": (
        {"advantage_estimator": "reinforce_plus_plus_baseline", "kl_coef": 0.05},
        _OUTCOME | _HAS_KL,
    ),
}

#: The same for estimators after the group normalization of raw rewards.
GROUPED: Mapping[str, tuple[Settings, Claims]] = {
    "grpo, from rewards": (
        {"advantage_estimator": "grpo", "kl_coef": 0.0, "grpo_std_normalization": True},
        claims(_GROUPS, credit="outcome", scope="group", baseline="relative", standardized=True),
    ),
    "grpo, from rewards, mean only": (
        {"advantage_estimator": "grpo", "kl_coef": 0.0, "grpo_std_normalization": False},
        claims(_GROUPS, credit="outcome", scope="group", baseline="relative", standardized=False),
    ),
}

_DATA = Use("rollout_data")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the trainer's function, of the pipeline from raw rewards, and of both versions of GAE."""
    kind = default_kind(target)
    candidates = [_advantages(name, settings, claimed, kind) for name, (settings, claimed) in FAMILIES.items()]
    candidates += [_from_rewards(target, name, settings, claimed) for name, (settings, claimed) in GROUPED.items()]
    for boundary in candidates:
        if _has_estimator(target, boundary):
            yield from bindable(target, _from_store(target, _without_absent_kl(target, boundary)))
    yield from bindable(target, _gae("vanilla_gae"), _gae("chunked_gae", f"{PPO}.vanilla_gae"))


def _has_estimator(target: Target, boundary: Boundary) -> bool:
    """Whether the release has the estimator of the boundary; True if its source cannot be read."""
    if not target.has(PATH) or target.fails(PATH):
        return True
    (settings,) = boundary.settings.values()
    return repr(settings["advantage_estimator"]).replace("'", '"') in loss_source(target)


def _without_absent_kl(target: Target, boundary: Boundary) -> Boundary:
    """Drop the output ``kl`` if the release does not write it to the data."""
    writes_kl = not target.has(PATH) or bool(target.fails(PATH)) or '"kl"' in inspect.getsource(target.find(PATH))
    kept = {name: output for name, output in boundary.outputs.items() if writes_kl or name != "kl"}
    return boundary if len(kept) == len(boundary.outputs) else replace(boundary, outputs=kept)


def _from_store(target: Target, boundary: Boundary) -> Boundary:
    """Pass the data through the process's storage, in releases that read the data from there."""
    if not target.has(PATH) or target.fails(PATH) or takes_data(target.find(PATH)):
        return boundary
    *before, step = boundary.steps
    required = {name: codec for name, codec in step.arguments.items() if name not in OPTIONAL}
    arguments = {"compute": Constant(Function(PATH)), **required}
    return replace(boundary, steps=(*before, replace(step, call=compute_advantages, arguments=arguments)))


def _advantages(  # noqa: PLR0913 - the parts in which the settings differ
    name: str, settings: Settings, claimed: Claims, kind: str, before: tuple[Step, ...] = (), rewards: Codec = REWARDS
) -> Boundary:
    """The boundary of one setting. Its data has values with a critic, and reference log-probs with a critic or a KL."""
    critic = settings["advantage_estimator"] == "ppo"
    has_kl = bool(settings["kl_coef"])
    data: dict[str, Codec] = {
        "log_probs": samples("old_logprob"),
        "rewards": rewards,
        "loss_masks": LOSS_MASKS,
        "total_lengths": TOTAL_LENGTHS,
        "response_lengths": RESPONSE_LENGTHS,
    }
    data |= {"ref_log_probs": samples("ref_logprob")} if has_kl or critic else {}
    data |= {"values": samples("value")} if critic else {}
    outputs = {
        "advantage": Output("B T", "reward", "advantage", at=_DATA["advantages"], form=Ragged()),
        "returns": Output("B T", "reward", "returns", at=_DATA["returns"], form=Ragged()),
    }
    if has_kl or critic:
        outputs["kl"] = Output("B T", "nats", "kl.k1", at=_DATA["kl"], form=Ragged())
    fixed = {key: value for key, value in DEFAULTS.items() if key not in settings} | {"kl_loss_type": kind}
    step = Step(
        call=PATH,
        arguments={"args": options(*settings, **fixed), "rollout_data": Table(data), **PARALLEL_STATE},
        optional=OPTIONAL,
        produced_by={
            "rollout_data": f"{MASKS}; actor.py, train_actor: log_probs and ref_log_probs from forward passes, "
            "ref_log_probs only with a reference model",
        },
    )
    return Boundary(
        path=" -> ".join([str(s.call) for s in before] + [PATH]),
        stage="advantage",
        steps=(*before, step),
        unused=frozenset({"excluded", *(() if has_kl or critic else ("old_logprob",))}),
        outputs=outputs,
        settings={name: settings},
        claims=claimed,
        reach=", ".join(f"--{k.replace('_', '-')} {v}" for k, v in settings.items()),
        requires=(prompts_are_contiguous, _group_has_deviation) if before else (),
    )


def _from_rewards(target: Target, name: str, settings: Settings, claimed: Claims) -> Boundary:
    """The boundary of the pipeline from raw rewards.

    slime groups rewards by position, ``n_samples_per_prompt`` in each group.
    """
    arguments = Object(
        "argparse.Namespace",
        {
            **knobs("advantage_estimator", "grpo_std_normalization"),
            "rewards_normalization": Constant(value=True),
            "n_samples_per_prompt": Derived(lambda inputs: max(group_sizes(inputs))),
            "rollout_batch_size": Derived(lambda inputs: len(group_sizes(inputs))),
            "reward_key": Constant(None),
        },
    )
    manager = {"custom_reward_post_process_func": Constant(None), "args": arguments}
    step = Step(
        call=normalization_method(target),
        name="normalized",
        arguments={
            "self": Object("types.SimpleNamespace", manager),
            "samples": EachRow(sample(target, "tokens", "rollout_log_probs")),
        },
        produced_by={
            "samples": "slime/ray/rollout.py, _convert_samples_to_train_data: samples of one rollout in order"
        },
    )
    return _advantages(name, settings, claimed, default_kind(target), (step,), Earlier(Use("normalized")[1]))


def _group_has_deviation(inputs: Inputs) -> str:
    """The reason to skip a batch with one sample per prompt if standard deviations divide rewards; empty otherwise."""
    alone = max(group_sizes(inputs)) == 1 and bool(inputs.settings["grpo_std_normalization"])
    return "slime_validate_args turns the deviation off if a prompt has one sample" if alone else ""


def _gae(name: str, *alternatives: str) -> Boundary:
    """The boundary of one implementation of GAE.

    The caller pads all samples with 0 to the length of the longest sample.
    """
    padded = ZeroPadded()
    return one_call(
        path=f"{PPO}.{name}",
        stage="advantage",
        call=f"{PPO}.{name}",
        name="result",
        arguments={"rewards": TokenRewards(padded), "values": Column("value", padded), **knobs("gamma", "lambd")},
        produced_by={"rewards": "ppo_utils.py, get_advantages_and_returns_batch: zeros(B, max_len), filled"},
        outputs={
            "advantage": Output("B T", "reward", "advantage", at=Use("result")[0], form=Padded()),
            "returns": Output("B T", "reward", "returns", at=Use("result")[1], form=Padded()),
        },
        settings={"default": {"gamma": 1.0, "lambd": 1.0}, "discounted": {"gamma": 0.9, "lambd": 0.95}},
        claims=claims("ppo_utils.py, the docstring", credit="temporal", scope="sequence", algorithm="gae"),
        alternatives=alternatives,
        reach="--advantage-estimator ppo",
    )
