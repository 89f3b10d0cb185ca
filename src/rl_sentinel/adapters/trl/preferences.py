"""TRL's losses on preference pairs: training steps of DPO, CPO, ORPO and TPO, from the collator to logged metrics."""

import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.pairs import rows_are_pairs
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, IfSet
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself
from rl_sentinel.adapters.trl.pair_codecs import (
    Cut,
    PairFeatures,
    TokenLogprobs,
    TripleFeatures,
    as_pairs,
    longest,
    tokens_have_probabilities,
)
from rl_sentinel.adapters.trl.preference_families import (
    CPO_FAMILIES,
    DPO_FAMILIES,
    FIELDS,
    ORPO_FAMILIES,
    TPO_FAMILIES,
    Family,
)
from rl_sentinel.adapters.trl.preference_trainers import make_pair_trainer, start_optimizer_step, train_on_logprobs
from rl_sentinel.adapters.trl.release import fields_of, shown
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

DPO = "trl.trainer.dpo_trainer.DPOTrainer"
CPO = "trl.trainer.cpo_trainer.CPOTrainer"
CPO_EXPERIMENTAL = "trl.experimental.cpo.cpo_trainer.CPOTrainer"
ORPO = "trl.trainer.orpo_trainer.ORPOTrainer"
ORPO_EXPERIMENTAL = "trl.experimental.orpo.orpo_trainer.ORPOTrainer"
TPO = "trl.experimental.tpo.tpo_trainer.TPOTrainer"

_PRODUCER = "the trainer's own data collator, on token ids of a tokenized data set: no padding"
PAIRED = claims("dpo_trainer.py: chosen and rejected completions of the same prompt", pairing="adjacent")
SCALED = claims(
    "transformers, Trainer.training_step: the loss is divided by the accumulation steps, as one large batch",
    denominator="given",
)

#: Logged name -> algorithm of the metric.
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
    """A trainer in a release.

    Attributes:
        path: dotted path of the class.
        source: source text of its module.
        known: fields of its configuration, by name.
        metrics: name of the attribute that stores logged metrics.
        reference: whether it has a reference model.
        whole: whether its data set joins prompt and completion.
        configured: whether settings are fields of a configuration, rather than arguments of the constructor.
        names: columns of its tokenized data set.
    """

    path: str
    source: str
    known: Mapping[str, Any]
    metrics: str
    reference: bool
    whole: bool = field(default=False)
    configured: bool = True
    names: tuple[str, ...] = ("prompt_ids", "chosen_ids", "rejected_ids")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of DPO's step under each loss, divergence and truncation, and of the steps of CPO, ORPO and TPO."""
    yield from _trainer_boundaries(target, DPO, DPO_FAMILIES)
    yield from _trainer_boundaries(target, trainer_path(target, CPO, CPO_EXPERIMENTAL), CPO_FAMILIES)
    yield from _trainer_boundaries(target, trainer_path(target, ORPO, ORPO_EXPERIMENTAL), ORPO_FAMILIES)
    yield from _trainer_boundaries(target, TPO, TPO_FAMILIES)


def trainer_path(target: Target, *paths: str) -> str:
    """The path of the first of these trainers whose constructor has a ``model`` parameter; else of the first trainer.

    Classes that only forward to another class have no such parameter.
    """
    present = [p for p in paths if target.has(p) and not target.fails(p)]
    with_model = (p for p in present if "model" in inspect.signature(target.find(p)).parameters)
    return target.locate(next(with_model, paths[0]))  # its path in this release, for scripts


def families_of(
    target: Target, path: str, families: Mapping[str, Family]
) -> Iterator[tuple[Release, str, Family] | Unbound]:
    """The families that the release supports, or why its step cannot be bound; nothing if the trainer is absent."""
    if not target.has(path):
        return
    if why := target.fails(path):
        yield Unbound(f"{path}.compute_loss", "policy-loss", why)
        return
    release = release_of(target, path)
    if isinstance(release, Unbound):
        yield release
        return
    yield from (
        (release, name, family) for name, family in families.items() if family.fits(release.known, release.source)
    )


def default_releases(
    target: Target, trainers: Iterable[tuple[tuple[str, ...], Family, bool]]
) -> Iterator[tuple[Release, Family, bool]]:
    """The release of each trainer that can be built, its settings, and whether its rows are pairs.

    A trainer that cannot be built is reported by :func:`boundaries`.
    """
    for places, family, paired in trainers:
        for found in families_of(target, trainer_path(target, *places), {"default": family}):
            if not isinstance(found, Unbound):
                yield found[0], family, paired


def _trainer_boundaries(target: Target, path: str, families: Mapping[str, Family]) -> Iterator[Boundary | Unbound]:
    for entry in families_of(target, path, families):
        if isinstance(entry, Unbound):
            yield entry
            continue
        release, name, family = entry
        yield from bindable(target, training_step(release, name, family))
        truncates = release.reference or '"reference_ids"' in release.source
        cuts: tuple[Cut, ...] = ("keep_start", "keep_end") if truncates else ()
        if family.truncated:
            yield from bindable(
                target, *(training_step(release, name, family, cut) for cut in cuts if _truncates(release, cut))
            )


def release_of(target: Target, path: str) -> Release | Unbound:
    """Facts about the trainer in this release, or the reason why its step cannot be bound."""
    trainer = target.find(path)
    module = inspect.getsource(inspect.getmodule(trainer))  # type: ignore[arg-type]  # a class has a module
    known = fields_of(target, path) or arguments_of(trainer)
    if not fields_of(target, path) and "def tokenize_row" not in module:
        return Unbound(f"{path}.compute_loss", "policy-loss", "the collator of this release takes texts, not token ids")
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
    """The optional arguments of a trainer's constructor, in the form of configuration fields."""
    parameters = inspect.signature(trainer).parameters.values()
    fields = ((parameter.name, dataclasses.field(default=parameter.default)) for parameter in parameters)
    return {name: field for name, field in fields if field.default is not inspect.Parameter.empty}


def _truncates(release: Release, cut: Cut) -> bool:
    """Whether the collator or the forward pass truncates sequences. Earlier releases truncate during tokenization."""
    return not release.whole and "truncation_mode" in release.known and f'"{cut}"' in release.source


def ready_trainer(release: Release, family: Family, cut: Cut = "") -> Object:
    """The trainer with the settings of a family, at the start of an optimizer step."""
    settings = {**family.settings, **({"truncation_mode": cut} if cut else {})}
    parts: dict[str, Codec] = {"trainer": Constant(Function(release.path))}
    places = {"trainer": "__class__"}
    for name in settings:
        if name not in family.described:
            field_name = FIELDS.get(name, name)
            parts[field_name] = IfSet(name)
            prefix, suffix = "args." if release.configured else "", family.place(release.known[field_name])
            places[field_name] = f"{prefix}{field_name}{suffix}"
    built = Object(make_pair_trainer, parts, at=places, shared=True)
    ready: dict[str, Codec] = {"0": built, "micro_batches": MICRO_BATCHES}
    if cut:
        ready |= {"max_length": Derived(longest), "cuts": Constant(value=True)}
    at = {"0": "", "micro_batches": "args.gradient_accumulation_steps", "cuts": "__class__"}
    return Object(start_optimizer_step, ready, at=at)


def training_step(release: Release, name: str, family: Family, cut: Cut = "") -> Boundary:
    """The boundary of a training step under the settings of a family; with ``cut``, sequences are truncated."""
    entry = f"{release.path}.compute_loss"
    settings = {**family.settings, **({"truncation_mode": cut} if cut else {})}
    before = Step(call=itself, name="trainer", arguments={"0": ready_trainer(release, family, cut)})
    features = TripleFeatures if '"reference_ids"' in release.source else PairFeatures
    arguments: dict[str, Codec] = {
        "entry": Constant(Function(entry)),
        "learner": Earlier(Use("trainer")),
        "features": features(
            whole=release.whole, cut=cut, names=release.names, prompts=family.prompts, shortest=family.shortest
        ),
        "logprobs": TokenLogprobs("logprob"),
    }
    if release.reference:
        arguments["ref_logprobs"] = TokenLogprobs("ref_logprob", leaf=False)
    step = Step(
        call=train_on_logprobs,
        name="loss",
        arguments=arguments,
        each=("micro_batch",),
        produced_by={"features": _PRODUCER},
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
        | _metric_claims(logged, family, release.source),
        reach=", ".join(
            f"{FIELDS.get(k, k)}={shown(v, release.source)}" for k, v in settings.items() if k not in family.described
        ),
        requires=(rows_are_pairs, every_row_trains, tokens_have_probabilities),
        domain=as_pairs,
    )


def _metric_claims(logged: Iterable[str], family: Family, source: str) -> Claims:
    """The claims of the logged metrics. The supervised loss has rewards of 0 in releases that set them to 0."""
    algorithms = {n: LOGGED[n] for n in logged}
    if family.settings.get("loss_type") != "sft" or "chosen_rewards = torch.zeros_like(" not in source:
        return claims(_LOGS, output_algorithms=algorithms)
    supervised = {
        n: "no reward" if n in ("rewards/chosen", "rewards/rejected", "rewards/margins") else x
        for n, x in algorithms.items()
    }
    supervised.pop("rewards/accuracies", None)
    return claims(
        "dpo_trainer.py, dpo_loss, branch 'sft': chosen_rewards = torch.zeros_like(...)", output_algorithms=supervised
    )
