"""slime's training step: ``loss_function`` with the loss that its command line selects, over all micro-batches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachCut, Namespace, Object, Table
from rl_sentinel.adapters.kit.sequences import ModelOutput, RaggedSequence
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, Knob
from rl_sentinel.adapters.slime.arguments import (
    LOSS,
    LOSS_MASKS,
    MASK_SUMS,
    MASKS,
    RESPONSE_LENGTHS,
    TOTAL_LENGTHS,
    samples,
)
from rl_sentinel.adapters.slime.doubles import train_step
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.world import group
from rl_sentinel.core.boundary import Boundary, Output, Population, Stage, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

PATH = f"{LOSS}.loss_function"

#: What reduces the reports of the micro-batches of all ranks, newest place first.
REDUCERS = (
    "slime.observability.train_metric_utils.reduce_train_step_metrics",
    "slime.backends.megatron_utils.cp_utils.reduce_train_step_metrics",
)

#: Neutral name of a number -> its argument on slime's command line.
NUMBERS: Mapping[str, str] = {
    "clip_low": "eps_clip",
    "clip_high": "eps_clip_high",
    "ceiling": "eps_clip_c",
    "entropy_coeff": "entropy_coef",
    "kl_loss_coef": "kl_loss_coef",
    "value_clip": "value_clip",
    "most": "tis_clip",
    "least": "tis_clip_low",
}

#: Arguments that every run has, at the defaults of slime/utils/arguments.py.
DEFAULTS: Settings = {
    "advantage_estimator": "grpo",
    "loss_type": "policy_loss",
    "eps_clip": 0.2,
    "eps_clip_high": 0.2,
    "eps_clip_c": None,
    "value_clip": 0.2,
    "entropy_coef": 0.0,
    "use_kl_loss": False,
    "kl_loss_coef": 0.0,
    "kl_loss_type": "k1",
    "use_unbiased_kl": False,
    "use_rollout_logprobs": False,
    "use_opsm": False,
    "opsm_delta": 1e-4,
    "use_tis": False,
    "tis_clip": 2.0,
    "tis_clip_low": 0,
    "get_mismatch_metrics": False,
    "custom_tis_function_path": None,
    "custom_pg_loss_reducer_function_path": None,
    "calculate_per_token_loss": False,
    "recompute_loss_function": False,
    "allgather_cp": False,
    "rollout_temperature": 1.0,
    "rollout_top_p": 1.0,
    "log_probs_chunk_size": -1,
    "qkv_format": "thd",
}

_CALLER = (
    "slime/backends/megatron_utils/model.py, train_one_step: get_batch and loss_function of each micro-batch; "
    "Megatron's forward_step divides by the number of micro-batches, or by the tokens of all"
)

_GIVEN = claims(
    "loss.py, loss_function: num_microbatches, step_global_batch_size and rollout_mask_sums are those of the step",
    denominator="given",
)
_BY_SAMPLE = _GIVEN | claims(
    "cp_utils.py, get_sum_of_sample_mean: mean over each sample's tokens; loss.py, loss_function: sum of these "
    "means divided by step_global_batch_size",
    aggregation="sequence-mean-token-mean",
    rows="all",
)
_BY_TOKEN = _GIVEN | claims("arguments.py: --calculate-per-token-loss", aggregation="token-mean")
_RATIO = claims("ppo_utils.py, compute_policy_loss: ratio of the current to the old policy", ratio=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A loss under one command line: neutral settings, slime's own words, claims, and what the data has besides."""

    settings: Settings
    words: Settings = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)
    columns: tuple[str, ...] = ()
    reports: Mapping[str, Output] = field(default_factory=dict)


CLIP: Settings = {"clip_low": 0.2, "clip_high": 0.28}

_PPO = _RATIO | claims("loss.py, policy_loss_function: PPO-style clipped loss", algorithm="ppo")

#: What every policy loss reports; train_metric_utils.py, reduce_train_step_metrics: the sum over the samples' means,
#: divided by step_global_batch_size, or the sum over tokens divided by their number.
REPORTS: Mapping[str, Output] = {
    "pg_loss": Output(""),
    "entropy_loss": Output("", "nats", "entropy.mean"),
    "pg_clipfrac": Output("", "", "clip_fraction"),
    "ppo_kl": Output("", "nats", "kl.k1"),
}

_TIS_REPORTS: Mapping[str, Output] = {
    "ois": Output("", "ratio", "ratio.mean"),
    "tis": Output("", "ratio", "ratio.mean"),
    "tis_clipfrac": Output(""),
    "tis_abs": Output(""),
    "train_rollout_logprob_abs_diff": Output("", "nats", "kl.abs"),
}

_KL_LOSS = claims(
    "arguments.py: --use-kl-loss, --kl-loss-type low_var_kl, --entropy-coef",
    kl="k3",
    output_pairs={"kl_loss": "logprob against ref_logprob"},
)

_TIS: Settings = {"most": 2.0, "least": 0.0}

POLICY: Mapping[str, Family] = {
    "grpo": Family(settings=CLIP, claims=_PPO | _BY_SAMPLE),
    "grpo, per token": Family(settings=CLIP, words={"calculate_per_token_loss": True}, claims=_PPO | _BY_TOKEN),
    "grpo, dual clip": Family(
        settings={**CLIP, "ceiling": 3.0},
        claims=_RATIO
        | claims("arguments.py: --eps-clip-c, lower bound of dual-clip PPO", algorithm="dual clip")
        | _BY_SAMPLE,
    ),
    "grpo, regularised": Family(
        settings={**CLIP, "entropy_coeff": 0.5, "kl_loss_coef": 0.25},
        words={"use_kl_loss": True, "kl_loss_type": "low_var_kl"},
        claims=_PPO | _BY_SAMPLE | _KL_LOSS,
        columns=("ref_logprob",),
        reports={"kl_loss": Output("", "nats", "kl.mean")},
    ),
    "gspo": Family(
        settings=CLIP,
        words={"advantage_estimator": "gspo"},
        claims=claims("ppo_utils.py, compute_gspo_kl: one value per sequence", ratio=True, scope="sequence")
        | _BY_SAMPLE,
        reports={"pg_clipfrac": Output("")},  # by the ratio of the sequence and the advantage of each token
    ),
    "cispo": Family(
        settings={"clip_low": 1.0, "clip_high": 4.0},
        words={"advantage_estimator": "cispo"},
        claims=claims("ppo_utils.py, compute_cispo_loss, docstring: CISPO loss", algorithm="cispo") | _BY_SAMPLE,
    ),
    "grpo, tis": Family(
        settings={**CLIP, **_TIS},
        words={"use_tis": True},
        claims=_PPO
        | _BY_SAMPLE
        | claims(
            "arguments.py: --use-tis, --tis-clip: truncated importance sampling",
            corrected_at_most=2.0,
            corrected_by="token",
        ),
        columns=("rollout_logprob",),
        reports=_TIS_REPORTS,
    ),
    "grpo, icepop": Family(
        settings={**CLIP, "most": 2.0, "least": 0.5},
        words={"use_tis": True, "custom_tis_function_path": f"{LOSS}.icepop_function"},
        claims=_RATIO | _BY_SAMPLE,
        columns=("rollout_logprob",),
        reports=_TIS_REPORTS,
    ),
    "grpo, opsm": Family(
        settings={**CLIP, "opsm_delta": 0.1},
        words={"use_opsm": True},
        claims=_RATIO | _BY_SAMPLE,
        reports={"opsm_clipfrac": Output("")},
    ),
}

VALUE = Family(
    settings={"value_clip": 0.2},
    words={"loss_type": "value_loss"},
    claims=claims(
        "loss.py, value_loss_function: the larger of clipped and unclipped squared errors",
        algorithm="clipped value",
        factor="the square",
    )
    | _BY_SAMPLE,
    reports={"value_clipfrac": Output("", "", "value_clip_fraction")},
)

SFT = Family(settings={}, words={"loss_type": "sft_loss"}, claims=_BY_SAMPLE)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The step with each policy loss, then with the critic's and the supervised one."""
    try:
        target.find(PATH)
    except Unbindable as why:
        yield Unbound(PATH, "policy-loss", str(why))
        return
    answers = Table({"log_probs": samples("logprob"), "entropy": samples("entropy")})
    policy: dict[str, Codec] = {"log_probs": samples("old_logprob"), "advantages": samples("advantage")}
    for name, family in POLICY.items():
        found = replace(family, reports={**REPORTS, **family.reports})
        yield from _bound(target, name, "policy-loss", found, {"output": answers, **policy})
    critic = {"output": Column("value", ModelOutput(shift=1)), "values": samples("old_value")}
    yield from _bound(target, "value", "value-loss", VALUE, {**critic, "returns": samples("returns")})
    supervised = {"output": Table({"log_probs": samples("logprob")})}
    yield from _bound(target, "sft", "policy-loss", SFT, supervised)


def _bound(
    target: Target, name: str, stage: Stage, family: Family, data: Mapping[str, Codec]
) -> Iterator[Boundary | Unbound]:
    loss = f"{LOSS}.{family.words.get('loss_type', 'policy_loss')}_function"
    if not target.has(loss):
        yield Unbound(f"{PATH} -> {loss}", stage, f"{loss} is absent")
        return
    yield from bindable(target, _boundary(target, name, stage, family, data))


def _boundary(target: Target, name: str, stage: Stage, family: Family, data: Mapping[str, Codec]) -> Boundary:
    loss = f"{LOSS}.{family.words.get('loss_type', 'policy_loss')}_function"
    columns = {"ref_logprob": "ref_log_probs", "rollout_logprob": "rollout_log_probs"}
    micro_batch: dict[str, Codec] = {
        **data,
        **{columns[column]: samples(column) for column in family.columns},
        "unconcat_tokens": Column("token", RaggedSequence()),
        "loss_masks": LOSS_MASKS,
        "total_lengths": TOTAL_LENGTHS,
        "response_lengths": RESPONSE_LENGTHS,
        "rollout_mask_sums": MASK_SUMS,
    }
    rows = Derived(lambda inputs: inputs.batch.rows)
    step = Step(
        call=train_step,
        name="trained",
        arguments={
            "loss_function": Constant(Function(PATH)),
            "args": command_line(family.settings, family.words, global_batch_size=rows),
            "micro_batches": EachCut(Table(micro_batch), "micro_batches"),
            "global_batch_size": rows,
        },
        produced_by={"micro_batches": f"{_CALLER}; {MASKS}"},
    )
    steps, outputs = [step], {"loss": Output("", "", "loss", at=Use("trained")["loss"])}
    reducer = next((path for path in REDUCERS if target.has(path)), "")
    if reducer:
        per_token = bool(family.words.get("calculate_per_token_loss"))
        steps.append(_reduced(reducer, per_token=per_token))
        over: Population = "live" if per_token else "rows"
        outputs |= {n: replace(output, at=Use("reported")[n], over=over) for n, output in family.reports.items()}
    return Boundary(
        path=f"{PATH} -> {loss}",
        stage=stage,
        steps=tuple(steps),
        unused=frozenset({"token", "prompt_length"}),
        outputs=outputs,
        settings={name: family.settings},
        claims=family.claims,
        reach=_spelt(family),
    )


def _reduced(path: str, *, per_token: bool) -> Step:
    """What the step reports: the sums of all micro-batches and ranks, by their common denominator."""
    return Step(
        call=path,
        name="reported",
        arguments={
            "losses_reduced": Earlier(Use("trained")["reported"]),
            "calculate_per_token_loss": Constant(per_token),
            "step_global_batch_size": Derived(lambda inputs: inputs.batch.rows),
            "cp_size": Constant(1),
            "dp_with_cp_group": Object(group, shared=True),
        },
    )


def command_line(settings: Settings, words: Settings, **more: Codec) -> Object:
    """The arguments of slime: defaults, then ``words`` in its own names, then knobs for the neutral ``settings``."""
    knobs: dict[str, Codec] = {NUMBERS.get(name, name): Knob(name) for name in settings}
    return Namespace(**{name: Constant(value) for name, value in {**DEFAULTS, **words}.items()} | knobs | more)


def _spelt(family: Family) -> str:
    """The command line that leads there."""
    given: dict[str, Scalar] = {NUMBERS.get(name, name): value for name, value in family.settings.items()}
    return ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in {**family.words, **given}.items())
