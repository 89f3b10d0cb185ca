"""TRL's optimizer step: ``training_step`` on a buffered rollout, over micro-batches, iterations and ranks."""

from collections.abc import Iterator
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachCut, Object
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.per_response import PerResponse
from rl_sentinel.adapters.kit.requirements import equal_parts, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import (
    FIELDS,
    GRPO,
    RLOO,
    Completions,
    one_rank,
    trainer,
    trains_every_completion,
    trains_whole_completions,
)
from rl_sentinel.adapters.trl.loss_families import PLAIN, RATIO, ROW, Family
from rl_sentinel.adapters.trl.losses import clipping_subclasses, logged_metrics, release_family
from rl_sentinel.adapters.trl.rank_fakes import collectives
from rl_sentinel.adapters.trl.release import NAME, method, reads_tool_mask, source_of
from rl_sentinel.adapters.trl.scoring import ENVIRONMENT
from rl_sentinel.adapters.trl.update_fakes import optimizer_step, ready_to_update
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Loss families that are bound in the whole step.
IN_STEPS = ("default", "KL", "KL, no loss type", "vLLM, token_truncate", "vLLM, capped")

#: Loss families whose metrics are bound over ranks.
LOGGED_OVER_RANKS = ("KL", "KL, no loss type")

_PRODUCER = (
    "grpo_trainer.py, _prepare_inputs: a rollout is generated, shuffled, split into steps_per_generation "
    "micro-batches, and used num_iterations times"
)

_RLOO = claims("rloo_trainer.py, _compute_loss: exp(logps - old_logps)", ratio=True, scope="sequence") | claims(
    "transformers, Trainer.training_step divides by the accumulation steps", denominator="given"
)

_THRESHOLD = claims(
    "grpo_trainer.py, get_high_entropy_mask: the threshold is a quantile of the tokens of all processes",
    denominator="given",
)


_MASKED = "mask_truncated_completions"

_OFF_POLICY = (
    "grpo_config.py, off_policy_mask_threshold: the delta of equation 9 of DeepSeek-V3.2 (arXiv 2512.02556), whose old "
    "policy is the inference engine's, by the log-probs that it returned"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of GRPO's optimizer step, off-policy mask and metrics over ranks, and of RLOO's step and metrics."""
    if not target.has(f"{GRPO}.{NAME}"):
        return
    path = method(target, GRPO, "_compute_loss", "compute_loss")
    for name in IN_STEPS:
        family = release_family(target, name, path)
        if family is not None:
            yield from bindable(target, _loss(target, "grpo", name, family))
    chosen = release_family(target, "top entropy", path)
    if chosen is not None:
        settings = {name: value for name, value in chosen.settings.items() if name != _MASKED}
        family = replace(chosen, settings=settings, claims=chosen.claims | _THRESHOLD, tools=False)
        yield from bindable(target, _loss(target, "grpo", "top entropy", family, alone=True))
    masking = release_family(target, "off-policy mask, vLLM", path)
    if masking is not None:
        yield from bindable(target, _off_policy_mask(target, masking))
    for loss, derived in ((path, ""), *((f"{d}._compute_loss", d) for d in clipping_subclasses(target))):
        yield from bindable(target, *_logged_over_ranks(target, loss, derived))
    if target.has(f"{RLOO}._compute_loss"):
        family = Family({**PLAIN, "beta": 0.0}, _RLOO, tools=False)
        yield from bindable(target, _loss(target, "rloo", "default", family))
        yield from bindable(target, *_metrics(target, "rloo", f"{RLOO}._compute_loss", family))


def _logged_over_ranks(target: Target, path: str, derived: str) -> Iterator[Boundary]:
    """Boundaries of the metrics of GRPO's loss, or of the loss of a subclass."""
    for name in LOGGED_OVER_RANKS:
        family = release_family(target, name, path)
        if family is not None:
            yield from _metrics(target, "grpo", path, family, derived)


def _step(target: Target, kind: str, family: Family, derived: str = "", *, alone: bool) -> Step:
    """The step that trains one optimizer step on a rollout; with ``alone``, each rank has one micro-batch."""
    tools = family.tools and reads_tool_mask(target)
    vllm = "use_vllm" in family.settings
    parts: dict[str, Codec] = {
        "trainer": trainer(kind, family.settings, family.described, derived),
        "micro_batches": Constant(1) if alone else MICRO_BATCHES,
        "rank": Derived(lambda inputs: inputs.part[0]),
        "ranks": Derived(lambda inputs: inputs.part[1], frozenset({"ranks"})),
        "logprobs": Column("logprob"),
        "entropies": Column("entropy"),
        "advantages": PerResponse("advantage"),
        "completions": Completions(cut="mask"),
        "old_logprobs": Column("old_logprob"),
        "ref_logprobs": Column("ref_logprob") if "kl_loss_coef" in family.settings else Constant(None),
        "sampler_logprobs": Column("rollout_logprob", Ragged(plain=True)) if vllm else Constant(None),
        "env_mask": ENVIRONMENT if tools else Constant(None),
    }
    at = {name: f"rollout.{name}" for name in parts if name.endswith(("completions", "_logprobs", "env_mask"))}
    at |= {"trainer": "", "micro_batches": "args.gradient_accumulation_steps", "rank": "accelerator.process_index"}
    at |= {"ranks": "accelerator.num_processes", "logprobs": "policy.logprobs", "entropies": "policy.entropies"}
    return Step(
        call=optimizer_step,
        name="trained",
        arguments={"trainers": EachCut(Object(ready_to_update, parts, at=at), "ranks")},
        produced_by={"trainers": _PRODUCER},
        fakes=collectives(target, kind),
    )


def _loss(target: Target, kind: str, name: str, family: Family, *, alone: bool = False) -> Boundary:
    tools = family.tools and reads_tool_mask(target)
    masked = _MASKED in family.settings
    return Boundary(
        path=f"{GRPO if kind == 'grpo' else RLOO}.training_step",
        stage="policy-loss",
        steps=(_step(target, kind, family, alone=alone),),
        unused=frozenset({"prompt_length"} | (set() if "top_entropy_quantile" in family.settings else {"entropy"})),
        outputs={"loss": Output("", "", "loss", at=Use("trained")["loss"])},
        settings={name: family.settings},
        claims=RATIO | ROW | family.claims,
        reach=_configuration(family),
        requires=(
            equal_parts,
            no_empty_response,
            *(() if tools else (trains_whole_completions,)),
            *(() if masked else (trains_every_completion,)),
        ),
    )


def _off_policy_mask(target: Target, family: Family) -> Boundary:
    """The boundary of the completions that a step keeps.

    The step drops completions whose log-probs are far from the sampling policy.
    """
    boundary = _loss(target, "grpo", "off-policy mask, vLLM", family, alone=True)
    kept = Output("B", "", "keep", at=Use("trained")["trainer"].attribute("kept"))
    settings = {name: {n: v for n, v in values.items() if n != _MASKED} for name, values in boundary.settings.items()}
    plain = replace(family, settings=next(iter(settings.values())), tools=False)
    steps = (_step(target, "grpo", plain, alone=True),)
    return replace(
        boundary,
        stage="correct",
        steps=steps,
        reads=frozenset(),
        outputs={"keep": kept},
        settings=settings,
        claims=claims(_OFF_POLICY, output_algorithms={"keep": "sequences near the sampler kept"}) | ROW,
        requires=(equal_parts, one_rank, no_empty_response, trains_whole_completions, trains_every_completion),
    )


def _metrics(target: Target, kind: str, path: str, family: Family, derived: str = "") -> Iterator[Boundary]:
    """Boundaries of the metrics that rank 0 logs in a step.

    Each rank has one micro-batch, where every completion trains.
    """
    settings = {name: value for name, value in family.settings.items() if name != _MASKED}
    place = Use("trained")["trainer"].attribute("_metrics")["train"]
    logged, claimed = logged_metrics(source_of(target.find(path)), settings, place)
    if kind == "rloo":
        logged = {name: replace(output, quantity="") for name, output in logged.items()}
    if not logged:
        return
    plain = replace(family, settings=settings, tools=False)
    yield Boundary(
        path=f"{derived or (GRPO if kind == 'grpo' else RLOO)}.training_step",
        stage="policy-loss",
        steps=(_step(target, kind, plain, derived, alone=True),),
        outputs=logged,
        settings={"logged over ranks": settings},
        claims=RATIO | ROW | family.claims | claimed,
        reach=_configuration(plain),
        requires=(equal_parts, no_empty_response, trains_whole_completions, trains_every_completion),
    )


def _configuration(family: Family) -> str:
    return ", ".join(f"{FIELDS.get(k, k)}={v}" for k, v in family.settings.items() if k not in family.described)
