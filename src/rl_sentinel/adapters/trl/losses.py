"""TRL's policy losses: ``_compute_loss`` of GRPO and RLOO, over micro-batches."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Earlier
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import (
    FIELDS,
    GRPO,
    POLICY,
    RLOO,
    EarlierRows,
    itself,
    micro_batch,
    training,
    trains_every_completion,
    trains_whole_completions,
)
from rl_sentinel.adapters.trl.loss_families import (
    FAMILIES,
    IMPLIED,
    MASKED,
    OF_SUBCLASSES,
    ON_POLICY,
    ONLY_IN_STEPS,
    PLAIN,
    RATIO,
    REPLACED,
    ROW,
    Family,
)
from rl_sentinel.adapters.trl.release import config_fields, log_place, method, reads_tool_mask, scoring_path, source_of
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.scoring import no_extra_padding, rollout_steps
from rl_sentinel.adapters.trl.subclasses import overriding
from rl_sentinel.core.boundary import Boundary, Join, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

#: The lines that produce the columns of a micro-batch.
_PRODUCER = (
    "grpo_trainer.py, _generate_and_score_completions: advantages [B], old_per_token_logps if a batch is used for "
    "several optimizer steps, masks of int64; _prepare_inputs splits its rows into micro-batches"
)

#: Loss types whose denominator is the number of tokens in the generation batch.
COUNTED = ("dapo", "cispo", "vespo")

#: Logged name -> the output that it is compared with, and the name of its definition.
LOGGED: Mapping[str, tuple[Output, str]] = {
    "kl": (Output("", "nats", "kl.mean", over="live"), ""),
    "entropy": (Output("", "nats", "entropy.mean", over="live"), ""),
    "clip_ratio": (Output("", "", "clip_fraction", over="live"), "where clipping binds"),
    "clip_ratio/low_mean": (Output("", "", "clip_fraction", over="live"), "below, where it binds"),
    "clip_ratio/high_mean": (Output("", "", "clip_fraction", over="live"), "above, where it binds"),
    "clip_ratio/region_mean": (Output("", "", "clip_fraction", over="live"), "where clipping binds"),
    "cispo_clip_ratio": (Output("", over="live"), ""),
}

_LOGS = (
    "grpo_trainer.py, _compute_loss: is_low_clipped, is_high_clipped, is_region_clipped; docs/source/grpo_trainer.md, "
    "clip_ratio: the fraction of tokens where the PPO objective is clipped"
)

#: The loss in releases with one loss type, if it is a mean over tokens.
_TOKEN_MEAN = re.compile(r"\(per_token_loss \* completion_mask\)\.sum\(\) / completion_mask\.sum\(\)")

#: The clipped objective.
_CLIPPED = re.compile(r"-torch\.min\(per_token_loss1, per_token_loss2\)")

_SAME_MEAN = (
    "grpo_trainer.py, compute_loss: (per_token_loss * completion_mask).sum() / completion_mask.sum(), in which the KL "
    "is a term; docs/source/grpo_trainer.md, kl: the average KL divergence"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the losses of GRPO, of its subclasses with a clipped loss, and of RLOO."""
    path = method(target, GRPO, "_compute_loss", "compute_loss")
    try:
        function = inspect.unwrap(target.find(path))
    except Unbindable as why:
        yield Unbound.because(path, "policy-loss", why)
        return
    if "reward_funcs" in source_of(function):
        return  # this loss also samples and scores: see early_losses
    for name in FAMILIES:
        if name in ONLY_IN_STEPS:
            continue
        family = release_family(target, name, path)
        if family is not None:
            yield from bindable(target, grpo(target, path, name, family))
    for derived in clipping_subclasses(target):
        for name in OF_SUBCLASSES:
            family = release_family(target, name, f"{derived}._compute_loss")
            if family is not None:
                yield from bindable(target, grpo(target, f"{derived}._compute_loss", name, family, derived))
    yield from _rloo(target)


def clipping_subclasses(target: Target) -> Iterator[str]:
    """Paths of the GRPO subclasses that define a clipped loss and need no images."""
    for path in overriding(target, "_compute_loss"):
        source = source_of(target.find(f"{path}._compute_loss"))
        if _CLIPPED.search(source) and 'inputs["pixel_values"]' not in source:
            yield path


def release_family(target: Target, name: str, path: str) -> Family | None:
    """The family, reduced to settings that the release supports; None if the release lacks the family."""
    family, known = FAMILIES[name], config_fields(target, "grpo")
    if REPLACED.get(name) in known:
        return None
    settings = {
        setting: value
        for setting, value in family.settings.items()
        if setting in family.described
        or FIELDS.get(setting, setting) in known
        or (setting in IMPLIED and value != IMPLIED[setting])
        or setting not in (*IMPLIED, "clip_high", *MASKED)
    }
    source = source_of(target.find(path))
    if ("old_per_token_logps" in source) is (name == ON_POLICY):
        return None
    lacking = {FIELDS.get(n, n) for n in settings if n not in family.described} - known
    named = [f'"{settings[name]}"' for name in ("loss_type", "importance_sampling_level") if name in settings]
    named += ['inputs["ref_per_token_logps"]'] if "kl_loss_coef" in settings else []
    if lacking or any(name not in source for name in named):
        return None
    return replace(family, settings=settings)


def loss_step(path: str, columns: Mapping[str, Codec], *, tools: bool, producer: str) -> Step:
    """The step that calls a trainer's loss for each micro-batch.

    ``producer`` cites the code that produces the micro-batch.
    """
    return Step(
        call=path,
        name="loss",
        arguments={"self": Earlier(Use("trainer")), "model": POLICY, "inputs": micro_batch(columns, tools=tools)},
        each=("micro_batch",),
        produced_by={"inputs": producer},
    )


def grpo(target: Target, path: str, name: str, family: Family, derived: str = "") -> Boundary:
    """The boundary of GRPO's loss under a family, summed over micro-batches.

    ``derived``, if not empty, is the path of the subclass that defines the loss.
    """
    settings, described = family.settings, family.described
    source = source_of(target.find(path))
    tools = family.tools and reads_tool_mask(target)
    columns: dict[str, Codec] = {} if name == ON_POLICY else {"old_per_token_logps": Column("old_logprob")}
    if "kl_loss_coef" in settings:
        columns["ref_per_token_logps"] = Column("ref_logprob")
    # Without a KL, the rollout of some releases has the column with None.
    elif '"ref_per_token_logps": ref_per_token_logps' in source_of(target.find(scoring_path(target, "grpo"))):
        columns["ref_per_token_logps"] = Constant(None)
    before = Step(call=itself, name="trainer", arguments={"trainer": training("grpo", settings, described, derived)})
    steps = [before]
    vllm, counted = "use_vllm" in settings, settings.get("loss_type") in COUNTED
    if vllm or counted:
        steps = [*rollout_steps("grpo", settings, described, tools=tools), before]
        columns["num_items_in_batch"] = Earlier(Use("generated")["num_items_in_batch"])
    if vllm:
        columns["importance_sampling_ratio"] = EarlierRows(Use("generated")["importance_sampling_ratio"])
    loss = loss_step(path, columns, tools=tools, producer=_PRODUCER)
    logged, definitions = logged_metrics(
        source if family.logs else "", settings, log_place(target, "grpo", Use("trainer"))
    )
    masked = "mask_truncated_completions" in settings
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(*steps, loss),
        unused=frozenset({"token", "prompt_length"} | (set() if _reads_entropy(settings) else {"entropy"})),
        outputs={"loss": Output("", "", "loss", at=Use("loss"), join=_join(target, source)), **logged},
        settings={name: settings},
        claims=RATIO | ROW | family.claims | definitions,
        reach=", ".join(f"{FIELDS.get(k, k)}={v}" for k, v in settings.items() if k not in described),
        requires=(
            equal_micro_batches,
            no_empty_response,
            *(() if tools else (trains_whole_completions,)),
            *(() if masked else (trains_every_completion,)),
            *((no_extra_padding,) if vllm else ()),
        ),
    )


def _join(target: Target, source: str) -> Join:
    """How losses of micro-batches are joined; ``source`` is that of the loss.

    ``Trainer.training_step`` of transformers divides by the accumulation steps if the trainer has set
    ``model_accepts_loss_kwargs`` to False. Since August 2025, TRL's loss divides by them itself.
    """
    declares = "model_accepts_loss_kwargs = False" in source_of(target.find(f"{GRPO}.__init__"))
    return "mean" if declares and "current_gradient_accumulation_steps" not in source else "sum"


def _reads_entropy(settings: Settings) -> bool:
    return bool({"top_entropy_quantile", "token_entropy_percentile_threshold", "entropy_coef"} & set(settings))


def logged_metrics(source: str, settings: Settings, place: Use) -> tuple[dict[str, Output], Claims]:
    """The metrics that the source code of the loss logs under these settings, and claims about their definitions."""
    by_row = settings.get("importance_sampling_level") in ("sequence", "sequence_token")
    metrics = {}
    for name, (output, _) in LOGGED.items():
        other_clip = name.startswith("clip_ratio") and settings.get("loss_type") in ("cispo", "sapo", "vespo")
        not_logged = (name == "kl" and "kl_loss_coef" not in settings) or (
            name == "cispo_clip_ratio" and settings.get("loss_type") != "cispo"
        )
        if other_clip or not_logged or not re.search(rf'\["{name}"\]\.append', source):
            continue
        declared = replace(output, at=place[name], form=Logged())
        if name.startswith("clip_ratio") and (by_row or "clip_low" not in settings):
            declared = replace(declared, quantity="", over="")  # of the ratio of a row, or there is no clip range
        if name == "kl" and settings.get("use_bias_correction_kl"):
            declared = replace(declared, quantity="")  # weighted by the ratio
        metrics[name] = declared
    definitions = {n: LOGGED[n][1] for n in metrics if LOGGED[n][1] and metrics[n].quantity == "clip_fraction"}
    claimed = claims(_LOGS, output_definitions=definitions)
    if "kl" in metrics and "loss_type" not in settings and _TOKEN_MEAN.search(source):
        claimed |= claims(_SAME_MEAN, output_definitions={"kl": "over trained tokens"})
    return metrics, claimed


_OLD = "rloo_trainer.py, _generate_and_score_completions: old_logps = (old_per_token_logps * completion_mask).sum(1)"


def _rloo(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of RLOO's loss, in releases whose RLOO trainer resembles GRPO's.

    In earlier releases, RLOO's trainer resembles PPO's.
    """
    path = f"{RLOO}._compute_loss"
    if not target.has(path):
        return
    old = Computed(
        frozenset({"old_logprob", "mask"}),
        lambda inputs: (inputs.batch.old_logprob * inputs.batch.mask).sum(1),
        "its terms cannot be recovered from a sum",
    )
    settings: Settings = {**PLAIN, "beta": 0.0}
    known = config_fields(target, "rloo")
    settings = {name: value for name, value in settings.items() if FIELDS.get(name, name) in known}
    before = Step(call=itself, name="trainer", arguments={"trainer": training("rloo", settings)})
    step = loss_step(path, {"old_logps": old}, tools=False, producer=_OLD)
    source = source_of(target.find(path))
    metrics, _ = logged_metrics(source, settings, Use("trainer").attribute("_metrics")["train"])
    logged = {n: replace(o, quantity="", over="") for n, o in metrics.items()}
    yield from bindable(
        target,
        Boundary(
            path=path,
            stage="policy-loss",
            steps=(before, step),
            unused=frozenset({"token", "entropy", "prompt_length"}),
            outputs={"loss": Output("", "", "loss", at=Use("loss"), join="mean"), **logged},
            settings={"default": settings},
            claims=claims("rloo_trainer.py, _compute_loss: exp(logps - old_logps)", ratio=True, scope="sequence")
            | claims("transformers, Trainer.training_step divides by the accumulation steps", denominator="given"),
            reach=", ".join(f"{FIELDS.get(k, k)}={v}" for k, v in settings.items()),
            requires=(equal_micro_batches, no_empty_response, has_trained_token, trains_whole_completions),
        ),
    )
