"""TRL's losses on pairs of responses: a training step of DPO and of CPO, from the collator to the logged numbers."""

import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, IfSet
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import micro_batch_count
from rl_sentinel.adapters.trl.pair_codecs import (
    Cut,
    PairFeatures,
    TokenLogprobs,
    as_pairs,
    longest,
    rows_are_pairs,
    tokens_have_probabilities,
)
from rl_sentinel.adapters.trl.preference_families import (
    CPO_FAMILIES,
    DPO_FAMILIES,
    FIELDS,
    ORPO_FAMILIES,
    Family,
)
from rl_sentinel.adapters.trl.preference_trainers import learn, make_pair_trainer, ready_to_learn
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

DPO = "trl.trainer.dpo_trainer.DPOTrainer"
CPO = "trl.trainer.cpo_trainer.CPOTrainer"
CPO_NOW = "trl.experimental.cpo.cpo_trainer.CPOTrainer"
ORPO = "trl.trainer.orpo_trainer.ORPOTrainer"
ORPO_NOW = "trl.experimental.orpo.orpo_trainer.ORPOTrainer"

_PRODUCER = "the trainer's own data collator, from token ids as its tokenized data set has them: no system padding"
PAIRED = claims("dpo_trainer.py: chosen and rejected completions of the same prompt", pairing="adjacent")
SCALED = claims(
    "transformers, Trainer.training_step: the loss is divided by the accumulation steps, as one large batch",
    denominator="given",
)

#: Logged name -> what it is.
LOGGED: Mapping[str, str] = {
    "rewards/chosen": "implicit reward of preferred responses",
    "rewards/rejected": "implicit reward of other responses",
    "rewards/margins": "implicit reward margin",
    "rewards/accuracies": "implicit reward accuracy",
    "logps/chosen": "log-prob of preferred responses",
    "logps/rejected": "log-prob of other responses",
}

_LOGS = "dpo_trainer.mdx, Logged metrics: mean difference of log-probs to the reference, scaled by beta; margins"


@dataclass(frozen=True)
class Release:
    """What a trainer of a release has: its path, sources, fields of its configuration, and where it logs."""

    path: str
    source: str
    known: Mapping[str, Any]
    metrics: str
    reference: bool
    whole: bool = field(default=False)
    configured: bool = True
    names: tuple[str, ...] = ("prompt_ids", "chosen_ids", "rejected_ids")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """DPO's step under each loss, divergence and truncation that the release has; then CPO's and ORPO's."""
    yield from _of_trainer(target, DPO, DPO_FAMILIES)
    yield from _of_trainer(target, next((p for p in (CPO, CPO_NOW) if target.has(p)), CPO), CPO_FAMILIES)
    yield from _of_trainer(target, trainer_path(target, ORPO, ORPO_NOW), ORPO_FAMILIES)


def trainer_path(target: Target, *paths: str) -> str:
    """The first of these trainers that names its model: classes that only forward their arguments do not."""
    present = [p for p in paths if target.has(p) and not target.fails(p)]
    return next((p for p in present if "model" in inspect.signature(target.find(p)).parameters), paths[0])


def families_of(
    target: Target, path: str, families: Mapping[str, Family]
) -> Iterator[tuple[Release, str, Family] | Unbound]:
    """The families that a release's trainer has, or why it cannot be built; nothing without such a trainer."""
    if not target.has(path):
        return
    if why := target.fails(path):
        yield Unbound(f"{path}.compute_loss", "policy-loss", why)
        return
    release = release_of(target, path)
    if isinstance(release, Unbound):
        yield release
        return
    yield from ((release, name, one) for name, one in families.items() if one.fits(release.known, release.source))


def _of_trainer(target: Target, path: str, families: Mapping[str, Family]) -> Iterator[Boundary | Unbound]:
    for found in families_of(target, path, families):
        if isinstance(found, Unbound):
            yield found
            continue
        release, name, family = found
        yield from bindable(target, learning(release, name, family))
        cuts: tuple[Cut, ...] = ("keep_start", "keep_end") if release.reference else ()
        if family.truncated:
            yield from bindable(target, *(learning(release, name, family, cut) for cut in cuts if _cuts(release, cut)))


def release_of(target: Target, path: str) -> Release | Unbound:
    """What a release's trainer has, or why it cannot be built."""
    trainer = target.find(path)
    module = inspect.getsource(inspect.getmodule(trainer))  # type: ignore[arg-type]  # a class has a module
    known = fields_of(target, path) or arguments_of(trainer)
    if not fields_of(target, path) and "def tokenize_row" not in module:
        return Unbound(f"{path}.compute_loss", "policy-loss", "the collator of this release tokenizes texts")
    plain = '"prompt_input_ids"' in module and '"prompt_ids"' not in module
    names = ("prompt_input_ids", "chosen_input_ids", "rejected_input_ids")
    return Release(
        path=path,
        source=module,
        known=known,
        metrics="_stored_metrics" if "_stored_metrics" in module else "_metrics",
        reference="ref_model" in inspect.signature(trainer).parameters,
        whole='"chosen_labels"' in module,
        configured=bool(fields_of(target, path)),
        **({"names": names} if plain else {}),
    )


def arguments_of(trainer: Any) -> dict[str, Any]:  # noqa: ANN401 - a class of the target
    """The settings of a trainer that takes them as arguments, in the form of fields of a configuration."""
    made = inspect.signature(trainer).parameters.values()
    fields = ((one.name, dataclasses.field(default=one.default)) for one in made)
    return {name: field for name, field in fields if field.default is not inspect.Parameter.empty}


def _cuts(release: Release, cut: Cut) -> bool:
    """Whether the collator or the forward pass cuts sequences; earlier releases cut while they tokenize."""
    return not release.whole and "truncation_mode" in release.known and f'"{cut}"' in release.source


def ready_trainer(release: Release, family: Family, cut: Cut = "") -> Object:
    """The trainer with the settings of a family, before an optimizer step."""
    settings = {**family.settings, **({"truncation_mode": cut} if cut else {})}
    parts: dict[str, Codec] = {"trainer": Constant(Function(release.path))}
    places = {"trainer": "__class__"}
    for name in settings:
        if name not in family.described:
            own = FIELDS.get(name, name)
            parts[own] = IfSet(name)
            places[own] = f"{'args.' if release.configured else ''}{own}{family.place(release.known[own])}"
    built = Object(make_pair_trainer, parts, at=places, shared=True)
    ready: dict[str, Codec] = {"0": built, "micro_batches": micro_batch_count()}
    if cut:
        ready |= {"max_length": Derived(longest), "cuts": Constant(value=True)}
    at = {"0": "", "micro_batches": "args.gradient_accumulation_steps", "cuts": "__class__"}
    return Object(ready_to_learn, ready, at=at)


def learning(release: Release, name: str, family: Family, cut: Cut = "") -> Boundary:
    """A training step of a release's trainer under a family, with sequences that are cut or not."""
    entry = f"{release.path}.compute_loss"
    settings = {**family.settings, **({"truncation_mode": cut} if cut else {})}
    before = Step(call=same, name="trainer", arguments={"0": ready_trainer(release, family, cut)})
    arguments: dict[str, Codec] = {
        "entry": Constant(Function(entry)),
        "learner": Earlier(Use("trainer")),
        "features": PairFeatures(whole=release.whole, cut=cut, names=release.names, prompts=family.prompts),
        "logprobs": TokenLogprobs("logprob"),
    }
    if release.reference:
        arguments["ref_logprobs"] = TokenLogprobs("ref_logprob", leaf=False)
    step = Step(
        call=learn, name="loss", arguments=arguments, each=("micro_batch",), produced_by={"features": _PRODUCER}
    )
    place = Use("trainer").attribute(release.metrics)["train"]
    logged = {n: Output("", "nats", at=place[n], form=Logged()) for n in LOGGED if family.logs(n, release.source)}
    return Boundary(
        path=entry,
        stage="policy-loss",
        steps=(before, step),
        outputs={"loss": Output("", "", "loss", at=Use("loss"), join="sum"), **logged},
        settings={f"{name}, {cut}" if cut else name: settings},
        claims=PAIRED
        | (claims("the losses sort the pairs of a micro-batch") if family.sorts else SCALED)
        | family.claims
        | _rewards(logged, family, release.source),
        reach=", ".join(f"{FIELDS.get(k, k)}={v}" for k, v in settings.items() if k not in family.described),
        requires=(rows_are_pairs, every_row_trains, tokens_have_probabilities),
        domain=as_pairs,
    )


def _rewards(logged: Iterable[str], family: Family, source: str) -> Claims:
    """What the logged numbers are: those of a supervised loss are 0 where its branch says so."""
    named = {n: LOGGED[n] for n in logged}
    if family.settings.get("loss_type") != "sft" or "chosen_rewards = torch.zeros_like(" not in source:
        return claims(_LOGS, output_algorithms=named)
    own = {
        n: "no reward" if n in ("rewards/chosen", "rewards/rejected", "rewards/margins") else x
        for n, x in named.items()
    }
    own.pop("rewards/accuracies", None)
    return claims(
        "dpo_trainer.py, dpo_loss, branch 'sft': chosen_rewards = torch.zeros_like(...)", output_algorithms=own
    )


def same(trainer: object, /) -> object:
    """The trainer, under a name that later steps use."""
    return trainer
