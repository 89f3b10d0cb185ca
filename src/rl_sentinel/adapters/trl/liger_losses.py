"""TRL with ``use_liger_kernel``: fused losses of GRPO, DPO, KTO and GKD, with the claims of the plain losses."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import distillation_steps, kto, liger, losses, preferences
from rl_sentinel.adapters.trl.arguments import GRPO
from rl_sentinel.adapters.trl.loss_families import RATIO, ROW, Family
from rl_sentinel.adapters.trl.pair_codecs import tokens_have_probabilities, trains_with_probability
from rl_sentinel.adapters.trl.preference_families import DPO_FAMILIES, KTO_FAMILIES
from rl_sentinel.adapters.trl.preference_families import Family as PairFamily
from rl_sentinel.adapters.trl.release import log_place, method, source_of
from rl_sentinel.adapters.trl.token_model import HeadedPolicy
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings

#: Settings that replace a loss by a fused one, newest first. Releases that have the second do so by it alone.
FUSED = ("use_liger_kernel", "use_liger_loss")

#: GRPO's losses that Liger has. None has a KL term, since the constructor would download a reference model.
GRPO_FAMILIES = (
    *("dapo", "grpo", "bnpo", "dr_grpo", "vLLM, token_truncate"),
    *("sapo", "cispo", "luspo", "grpo, sequence", "two-sided clip"),
)

#: Family -> settings that differ from the defaults of Liger's loss, which a trainer without the arguments would use.
NOT_BY_DEFAULT: Mapping[str, Settings] = {"sapo": {"temperature": 0.5, "negative_temperature": 2.0}}

#: Family -> an argument that a release passes to Liger's loss. Earlier releases refuse the setting.
PASSED = {"two-sided clip": "delta="}

#: DPO's losses that Liger has, and whose claims are those of the plain losses.
DPO_LOSSES = ("default", "apo_zero", "apo_down", "sppo_hard", "nca_pair")

#: An argument that a release passes to Liger's loss. In earlier releases, the setting has no effect on this loss.
_LOSS_TYPE = "loss_type=self.loss_type"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the fused losses of each trainer, if Liger is installed."""
    if not liger.installed():
        return
    yield from _grpo(target)
    yield from _preferences(target, preferences.DPO, {n: DPO_FAMILIES[n] for n in DPO_LOSSES})
    yield from _preferences(target, kto.KTO, {"default": KTO_FAMILIES["default"]})
    yield from distillation_steps.fused(target)


def _name(name: str) -> str:
    return f"{name}, Liger"


def fused_setting(target: Target, trainer: str) -> Settings:
    """The setting with which a trainer computes its loss by the fused kernel."""
    earlier = target.has(trainer) and f"args.{FUSED[1]}" in source_of(target.find(f"{trainer}.__init__"))
    return {FUSED[earlier]: True}


def _grpo(target: Target) -> Iterator[Boundary | Unbound]:
    path, plain = f"{GRPO}.compute_liger_loss", method(target, GRPO, "_compute_loss", "compute_loss")
    if not target.has(path) or target.fails(GRPO) or _LOSS_TYPE not in source_of(target.find(f"{GRPO}.__init__")):
        return
    for name in GRPO_FAMILIES:
        family = losses.release_family(target, name, plain)
        if family is not None and PASSED.get(name, "") in source_of(target.find(f"{GRPO}.__init__")):
            changed = {**NOT_BY_DEFAULT.get(name, {}), **fused_setting(target, GRPO)}
            own = replace(family, settings={**family.settings, **changed})
            yield from bindable(
                target, _of_hidden_states(losses.grpo(target, plain, name, own), target, path, name, own)
            )


def _of_hidden_states(made: Boundary, target: Target, path: str, name: str, family: Family) -> Boundary:
    """The boundary of GRPO's loss, computed by the fused kernel in place of the plain code."""
    *before, step = made.steps
    policy = Object(HeadedPolicy, {"logprobs": Column("logprob"), "tokens": Column("token")})
    takes = next(n for n in ("unwrapped_model", "model") if n in inspect.signature(target.find(path)).parameters)
    arguments = {n: codec for n, codec in step.arguments.items() if n != "model"} | {takes: policy}
    logged, definitions = losses.logged_metrics(
        source_of(target.find(path)) if family.logs else "", family.settings, log_place(target, "grpo", Use("trainer"))
    )
    return replace(
        made,
        path=path,
        steps=(*before, replace(step, call=path, arguments=arguments)),
        outputs={"loss": made.outputs["loss"], **logged},
        settings={_name(name): family.settings},
        claims=RATIO | ROW | family.claims | definitions,
        requires=(*made.requires, tokens_have_probabilities),
        domain=with_probability,
    )


def with_probability(batch: Batch) -> Batch:
    """The batch, whose trained tokens have probabilities."""
    return trains_with_probability(batch, rows=False)


def _preferences(target: Target, path: str, families: Mapping[str, PairFamily]) -> Iterator[Boundary | Unbound]:
    """Boundaries of a training step for each family; :mod:`preferences` reports trainers that cannot be built."""
    step = kto.training_step if path == kto.KTO else preferences.training_step
    own = {
        _name(n): replace(family, settings={**family.settings, **fused_setting(target, path)}, needs="LigerFusedLinear")
        for n, family in families.items()
    }
    for found in preferences.families_of(target, path, own):
        if not isinstance(found, Unbound):
            yield from bindable(target, step(*found))
