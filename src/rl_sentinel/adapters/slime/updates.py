"""slime's training step: ``loss_function`` over all micro-batches, for each loss that the command line can select."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachCut, Namespace, Object, Table
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.sequences import ModelOutput, RaggedSequence
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Derived, Earlier, Knob
from rl_sentinel.adapters.process_group import one_process_group
from rl_sentinel.adapters.slime.arguments import (
    GROUP_SUMS,
    LOSS,
    LOSS_MASKS,
    MASKS,
    RESPONSE_LENGTHS,
    TOTAL_LENGTHS,
    loss_source,
    samples,
)
from rl_sentinel.adapters.slime.fakes import train_step
from rl_sentinel.adapters.slime.families import DEFAULTS, NUMBERS, POLICY, REPORTS, SFT, VALUE, Family
from rl_sentinel.adapters.slime.training_step import PATH as STEP
from rl_sentinel.adapters.slime.training_step import load_rejecting, reduction
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Population, Stage, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Unbindable

PATH = f"{LOSS}.loss_function"

#: Paths of the function that reduces the reports of micro-batches and ranks, newest first.
REDUCERS = (
    "slime.observability.train_metric_utils.reduce_train_step_metrics",
    "slime.backends.megatron_utils.cp_utils.reduce_train_step_metrics",
)

_CALLER = (
    "slime/backends/megatron_utils/model.py, train_one_step: get_batch and loss_function of each micro-batch; "
    "Megatron's forward_step divides by the number of micro-batches, or by the tokens of all"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the step with each policy loss, with the value loss, and with the supervised loss."""
    try:
        target.find(PATH)
    except Unbindable as why:
        yield Unbound.because(PATH, "policy-loss", why)
        return
    output = Table({"log_probs": samples("logprob"), "entropy": samples("entropy")})
    policy: dict[str, Codec] = {"log_probs": samples("old_logprob"), "advantages": samples("advantage")}
    logged = loss_source(target)  # a revision may log fewer numbers
    for name, family in POLICY.items():
        # Metrics are means over rollouts, but the definitions are means over samples.
        general = {} if family.rejects or family.live else REPORTS
        reports = {} if family.rollouts is GROUP_SUMS else {**general, **family.reports}
        reports = {name: output for name, output in reports.items() if f'"{name}"' in logged}
        with_reports = replace(family, reports=reports)
        yield from _bound(target, name, "policy-loss", with_reports, {"output": output, **policy})
    critic = {"output": Column("value", ModelOutput(shift=1)), "values": samples("old_value")}
    yield from _bound(target, "value", "value-loss", VALUE, {**critic, "returns": samples("returns")})
    supervised = {"output": Table({"log_probs": samples("logprob")})}
    yield from _bound(target, "sft", "policy-loss", SFT, supervised)


def _bound(
    target: Target, name: str, stage: Stage, family: Family, data: Mapping[str, Codec]
) -> Iterator[Boundary | Unbound]:
    kind = str(family.words.get("loss_type", "policy_loss"))
    loss = f"{LOSS}.{kind}_function"
    source = loss_source(target)
    if not target.has(loss):
        if kind in source:
            yield Unbound(f"{PATH} -> {loss}", stage, f"{loss} is absent", absent=True)
        return
    offered = source + _command_line_options(target)
    if all(name in offered for name in _names(family)):
        yield from bindable(target, _boundary(target, name, stage, family, data))


def _command_line_options(target: Target) -> str:
    """The source of slime's command-line options, with each ``-`` replaced by ``_``."""
    path = target.root / "slime/utils/arguments.py"
    return path.read_text(encoding="utf-8").replace("-", "_") if path.is_file() else ""


def _names(family: Family) -> list[str]:
    """Names that the source of a revision must contain for this family: arguments, estimator and custom function."""
    names = [NUMBERS.get(name, name) for name in family.settings if name != "opsm_delta"] + list(family.words)
    chosen = (family.words.get(name, "") for name in ("advantage_estimator", "custom_tis_function_path"))
    counted = ["rollout_mask_sums"] if family.rollouts is GROUP_SUMS else []  # else each sample has its own denominator
    if family.rejects:  # the function is the user's
        return [*names, "modified_response_masks"]
    return [*names, *(str(value).rpartition(".")[2] for value in chosen), *counted]


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
        "rollout_mask_sums": family.rollouts,
    }
    rows = _GROUPS if family.rollouts is GROUP_SUMS else Derived(lambda inputs: inputs.batch.rows)
    step = Step(
        call=train_step,
        name="trained",
        arguments={
            "loss_function": Constant(Function(PATH)),
            "args": command_line(family.settings, family.words, global_batch_size=rows),
            "micro_batches": EachCut(Table(micro_batch), "micro_batches"),
            "global_batch_size": rows,
        },
        fakes={f"{LOSS}.load_function": load_rejecting} if family.rejects else {},
        produced_by={"micro_batches": f"{_CALLER}; {MASKS}"},
    )
    steps, outputs = [step], {"loss": Output("", "", "loss", at=Use("trained")["loss"])}
    reducer = next((path for path in REDUCERS if target.has(path)), "")
    if family.reports and (reducer or (target.has(STEP) and not target.fails(STEP))):
        per_token = bool(family.words.get("calculate_per_token_loss"))
        args = command_line(family.settings, family.words)
        steps.append(_reduced(reducer, per_token=per_token) if reducer else reduction(args))
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
        reach=_command(family),
        requires=(every_row_trains,) if family.live else (),
    )


def _groups(inputs: Inputs) -> int:
    """The number of rollouts; each group is one rollout."""
    return len(set(inputs.batch.group.tolist()))


_GROUPS = Computed(frozenset({"group"}), _groups, "the groups cannot be recovered from their number")


def _reduced(path: str, *, per_token: bool) -> Step:
    """The step that reduces the reports: sums over micro-batches and ranks, divided by their common denominator."""
    return Step(
        call=path,
        name="reported",
        arguments={
            "losses_reduced": Earlier(Use("trained")["reported"]),
            "calculate_per_token_loss": Constant(per_token),
            "step_global_batch_size": Derived(lambda inputs: inputs.batch.rows),
            "cp_size": Constant(1),
            "dp_with_cp_group": Object(one_process_group, shared=True),
        },
    )


def command_line(settings: Settings, words: Settings, **more: Codec) -> Object:
    """The arguments: slime's defaults, overridden by ``words`` and by knobs for ``settings``."""
    knobs: dict[str, Codec] = {NUMBERS.get(name, name): Knob(name) for name in settings}
    return Namespace(**{name: Constant(value) for name, value in {**DEFAULTS, **words}.items()} | knobs | more)


def _command(family: Family) -> str:
    numbers: dict[str, Scalar] = {NUMBERS.get(name, name): value for name, value in family.settings.items()}
    return ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in {**family.words, **numbers}.items())
