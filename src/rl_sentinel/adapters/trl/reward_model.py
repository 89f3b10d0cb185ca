"""TRL's reward model: the training step on pairs, from the collator to the loss and logged metrics."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.pairs import rows_are_pairs
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.value_codecs import Constant, Earlier, IfSet
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself
from rl_sentinel.adapters.trl.pair_codecs import PairFeatures, TokenLogprobs, as_pairs
from rl_sentinel.adapters.trl.preference_trainers import make_pair_trainer, start_optimizer_step, train_one_batch
from rl_sentinel.adapters.trl.preferences import PAIRED, SCALED
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.token_model import FIRST, VOCABULARY
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

REWARD = "trl.trainer.reward_trainer.RewardTrainer"

#: Columns of the tokenized data set, by release.
COLUMNS = (
    ("chosen_ids", "rejected_ids"),
    ("chosen_input_ids", "rejected_input_ids"),
    ("input_ids_chosen", "input_ids_rejected"),
)

#: Maximum tokens of a sequence: more than any case has.
LONGEST = 512

#: The formula's setting for the weight of the squared sum -> its field in the configuration.
CENTERING = {"centering": "center_rewards_coefficient"}

#: Settings that only formulas of metrics read: the score is the log-prob itself.
SCORES: Settings = {"beta": 1, "reference": False}
FAMILIES: Mapping[str, Settings] = {"default": SCORES, "centered": {**SCORES, "centering": 0.25}}

#: Logged name -> algorithm of the metric.
LOGGED = {"accuracy": "implicit reward accuracy", "margin": "implicit reward margin"}

_DOCS = (
    "docs/source/reward_trainer.md: the loss of Bradley and Terry on a pair's scores; center_rewards_coefficient "
    "weights the squared sum of the scores; the logged accuracy and margin are averaged over the pairs"
)
_PRODUCER = "reward_trainer.py, _prepare_dataset: token ids of prompt and completion; the trainer's own collator"


@dataclass(frozen=True, slots=True)
class ScoredPairs(PairFeatures):
    """One dict per pair with the joined token ids of prompt and completion; old releases also read attention masks."""

    def feature(self, chosen: list[int], rejected: list[int], most: int) -> dict[str, Any]:  # noqa: ARG002 - as its base
        """The token ids of one pair and, if their names contain ``input_ids``, the attention masks."""
        prompt = self.prompt(chosen)
        ids = {name: [*prompt, *side] for name, side in zip(self.names, (chosen, rejected), strict=True)}
        masks = {name.replace("input_ids", "attention_mask"): [1] * len(own) for name, own in ids.items()}
        return masks | ids

    def responses(self, value: list[dict[str, Any]]) -> list[list[int]]:
        """The token ids of each response."""
        return [[token for token in pair[name] if token >= FIRST] for pair in value for name in self.names]


class Answer(dict[str, Tensor]):
    """The output of a model: the scores can be read by key or by attribute."""

    @property
    def logits(self) -> Tensor:
        """The scores."""
        return self["logits"]


class Scores:
    """A fake forward pass of a reward model: the score of a sequence is the sum of its tokens' log-probs."""

    def __init__(self, logprobs: Tensor, outputs: int = 1) -> None:
        """Store ``[B, T]`` log-probs of the response tokens (other tokens count as 0) and the outputs of the head."""
        before, after = logprobs.new_zeros(FIRST), logprobs.new_zeros(VOCABULARY - FIRST - logprobs.numel())
        self.table, self.outputs = torch.cat([before, logprobs.flatten(), after]), outputs

    def __call__(self, input_ids: Tensor, attention_mask: Tensor, **_more: object) -> Answer:
        """Scores ``[B, 1]``; further outputs of the head are 0."""
        scores = (self.table[input_ids] * attention_mask).sum(1, keepdim=True)
        return Answer(logits=torch.cat([scores, scores.new_zeros(len(scores), self.outputs - 1)], 1))


def make_reward_trainer(trainer: Callable[..., Any], **settings: Any) -> Any:  # noqa: ANN401 - a trainer
    """A reward trainer, built by its constructor."""
    return scaled_as_scorer(make_pair_trainer(trainer, scores=1, max_length=LONGEST, **settings))


def scaled_as_scorer(trainer: Any) -> Any:  # noqa: ANN401 - a trainer
    """The trainer, which scales its loss as if its model was a sequence classifier instead of a language model.

    Where the forward pass of a model has no ``**kwargs``, the Trainer of transformers divides the loss by the
    accumulation steps. In early releases, language models have them, and sequence classifiers have not.
    """
    import transformers  # noqa: PLC0415 - in the target's overlay

    scorer = getattr(transformers, "LlamaForSequenceClassification", None)
    if scorer is not None and getattr(trainer, "model_accepts_loss_kwargs", False):
        kinds = {parameter.kind for parameter in inspect.signature(scorer.forward).parameters.values()}
        trainer.model_accepts_loss_kwargs = inspect.Parameter.VAR_KEYWORD in kinds
    return trainer


def train_on_scores(
    entry: Callable[..., Any],
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    logprobs: Tensor,
) -> Tensor:
    """Train on one micro-batch, collated by the trainer, and return the loss.

    The score of a sequence is the sum of its ``logprobs``.
    """
    head = getattr(learner.model, "score", None)
    learner.model.forward = Scores(logprobs, 1 if head is None else len(head.weight))
    return train_one_batch(entry, learner, learner.data_collator(features))


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training step of the reward trainer, with and without centered rewards."""
    path = f"{REWARD}.compute_loss"
    if not target.has(path):
        return
    if why := target.fails(path):
        yield Unbound(path, "policy-loss", why)
        return
    source = inspect.getsource(inspect.getmodule(target.find(REWARD)))  # type: ignore[arg-type]  # a class has a module
    names = columns_of(source)
    known = fields_of(target, REWARD)
    if names is None or "max_length" not in known:
        return
    for name, settings in FAMILIES.items():
        if all(CENTERING[key] in known for key in set(settings) & set(CENTERING)):
            yield from bindable(target, training_step(name, settings, names, source))


def columns_of(source: str) -> tuple[str, str] | None:
    """The columns of the tokenized data set that the source of a release reads; None if they are unknown."""
    return next((pair for pair in COLUMNS if f'"{pair[0]}"' in source), None)


def training_step(
    name: str,
    settings: Settings,
    names: tuple[str, ...],
    source: str,
    make: Callable[..., Any] = make_reward_trainer,
) -> Boundary:
    """The boundary of a training step under these settings, of the trainer that ``make`` builds."""
    path = f"{REWARD}.compute_loss"
    fields = {CENTERING[key]: IfSet(key) for key in settings if key in CENTERING}
    built = Object(
        make,
        {"trainer": Constant(Function(REWARD)), **fields},
        at={"trainer": "__class__", **{field: f"args.{field}" for field in fields}},
        shared=True,
    )
    ready = Object(
        start_optimizer_step,
        {"0": built, "micro_batches": MICRO_BATCHES},
        at={"0": "", "micro_batches": "args.gradient_accumulation_steps"},
    )
    arguments: dict[str, Codec] = {
        "entry": Constant(Function(path)),
        "learner": Earlier(Use("trainer")),
        "features": ScoredPairs(names=names),
        "logprobs": TokenLogprobs("logprob"),
    }
    step = Step(
        call=train_on_scores,
        name="loss",
        arguments=arguments,
        each=("micro_batch",),
        produced_by={"features": _PRODUCER},
    )
    place = Use("trainer").attribute("_metrics")["train"]
    names_logged = [n for n in LOGGED if f'["{n}"]' in source and "self._metrics" in source]
    logged = {n: Output("", "nats", at=place[n], form=Logged()) for n in names_logged}
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(Step(call=itself, name="trainer", arguments={"0": ready}), step),
        outputs={"loss": Output("", "", "loss", at=Use("loss"), join="sum"), **logged},
        settings={name: settings},
        claims=PAIRED
        | SCALED
        | claims(_DOCS, algorithm="bradley-terry", output_algorithms={n: LOGGED[n] for n in logged}),
        reach="center_rewards_coefficient" if fields else "every step of a reward model",
        requires=(rows_are_pairs, every_row_trains),
        domain=as_pairs,
    )
