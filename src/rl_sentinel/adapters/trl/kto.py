"""TRL's KTO: training step and logged metrics on single responses, labeled desirable or undesirable."""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.pairs import rows_are_pairs
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.value_codecs import Constant, Earlier
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself
from rl_sentinel.adapters.trl.pair_codecs import (
    PairFeatures,
    TokenLogprobs,
    as_pairs,
    tokens_have_probabilities,
)
from rl_sentinel.adapters.trl.preference_families import FIELDS, KTO_FAMILIES, Family
from rl_sentinel.adapters.trl.preference_trainers import train_on_logprobs
from rl_sentinel.adapters.trl.preferences import SCALED, Release, families_of, ready_trainer, trainer_path
from rl_sentinel.adapters.trl.token_model import FIRST
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

KTO = "trl.trainer.kto_trainer.KTOTrainer"
KTO_EXPERIMENTAL = "trl.experimental.kto.kto_trainer.KTOTrainer"

ALTERNATING = claims("the data set of this audit: rows alternate, desirable then undesirable", pairing="adjacent")
_PRODUCER = (
    "kto_trainer.py: prompts, completions and labels of the tokenized data set, and for the KL term the completion of "
    "the previous row within the batch (the first row takes the last one's)"
)

#: Logged name -> algorithm of the metric.
LOGGED: Mapping[str, str] = {
    "rewards/chosen": "implicit reward of preferred responses",
    "rewards/rejected": "implicit reward of other responses",
    "rewards/margins": "implicit reward margin",
    "logps/chosen": "log-prob of preferred responses",
    "logps/rejected": "log-prob of other responses",
    "kl": "kl over mismatched prompts",
}
_LOGS = "kto_trainer.mdx, Logged metrics: log-probs, and rewards of chosen and rejected responses, their margin, the KL"


@dataclass(frozen=True, slots=True)
class LabeledFeatures(PairFeatures):
    """One dict per response: prompt, completion, label, and a completion of another row for the KL term.

    Even rows are desirable. With ``whole``, prompt and completion form one sequence, with labels.
    """

    def put(self, inputs: Inputs) -> list[dict[str, Any]]:
        """One dict of token ids and labels per response; the KL completion is the completion of the previous row."""
        rows = self.rows(inputs)
        others = rows[-1:] + rows[:-1]
        return [self.row(n, own, other) for n, (own, other) in enumerate(zip(rows, others, strict=True))]

    def row(self, number: int, own: list[int], other: list[int]) -> dict[str, Any]:
        """The token ids and the label of one response."""
        prompt = self.prompt(own)
        label = {"label": number % 2 == 0}
        if not self.whole:
            return {"prompt_ids": prompt, "completion_ids": own, "KL_completion_ids": other, **label}
        tokens: dict[str, Any] = {"prompt_input_ids": prompt, "prompt_attention_mask": [1] * len(prompt), **label}
        for prefix, ids in {"": own, "KL_": other}.items():
            tokens[f"{prefix}completion_input_ids"] = prompt + ids
            tokens[f"{prefix}completion_attention_mask"] = [1] * (len(prompt) + len(ids))
            tokens[f"{prefix}completion_labels"] = [-100] * len(prompt) + ids
        return tokens

    @override
    def responses(self, value: list[dict[str, Any]]) -> list[list[int]]:
        name = "completion_labels" if self.whole else "completion_ids"
        return [[token for token in row[name] if token >= FIRST] for row in value]


def takes_whole(release: Release) -> bool:
    """Whether the rows of a release are whole sequences, as until May 2026, and not prompts and completions."""
    return '"completion_labels"' in release.source and '"completion_ids"' not in release.source


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of KTO's training step, for each loss type and each weighting."""
    for entry in families_of(target, trainer_path(target, KTO, KTO_EXPERIMENTAL), KTO_FAMILIES):
        if isinstance(entry, Unbound):
            yield entry
        else:
            yield from bindable(target, training_step(*entry))


def labeled_step(release: Release, name: str, family: Family, call: Callable[..., Tensor], producer: str) -> Boundary:
    """The boundary of a training step on labeled responses.

    ``call`` runs the step; ``producer`` cites the source of the responses.
    """
    entry = f"{release.path}.compute_loss"
    before = Step(call=itself, name="trainer", arguments={"0": ready_trainer(release, family)})
    step = Step(
        call=call,
        name="loss",
        arguments={
            "entry": Constant(Function(entry)),
            "learner": Earlier(Use("trainer")),
            "features": LabeledFeatures(whole=takes_whole(release)),
            "logprobs": TokenLogprobs("logprob"),
            "ref_logprobs": TokenLogprobs("ref_logprob", leaf=False),
        },
        each=("micro_batch",),
        produced_by={"features": producer},
    )
    return Boundary(
        path=entry,
        stage="policy-loss",
        steps=(before, step),
        outputs={"loss": Output("", "", "loss", at=Use("loss"), join="sum")},
        settings={name: family.settings},
        claims=ALTERNATING | family.claims,
        reach=", ".join(f"{FIELDS.get(k, k)}={v}" for k, v in family.settings.items()),
        requires=(rows_are_pairs, every_row_trains, tokens_have_probabilities),
        domain=as_pairs,
    )


def training_step(release: Release, name: str, family: Family) -> Boundary:
    """The boundary of KTO's training step under the settings of a family, and of the metrics that it logs."""
    made = labeled_step(release, name, family, train_on_logprobs, _PRODUCER)
    log = Step(call=logged_metrics, name="logs", arguments={"learner": Earlier(Use("trainer"))})
    metrics = ("rewards", "logps") if "logps/" in release.source else ("rewards",)
    quantities = {n: q for n, q in LOGGED.items() if n.startswith(metrics) or (n == "kl" and family.sorts)}
    numbers = {n: Output("", "nats", at=Use("logs")[n], form=Number()) for n in quantities}
    return replace(
        made,
        steps=(*made.steps, log),
        outputs={**made.outputs, **numbers},
        claims=made.claims
        | (claims("the KL term is that of a micro-batch") if family.sorts else SCALED)
        | claims(_LOGS, output_algorithms=quantities),
    )


def logged_metrics(learner: Any) -> dict[str, Any]:  # noqa: ANN401 - a trainer
    """The metrics that the trainer's ``log`` adds, either to the dict that it gets or to the log history."""
    logs: dict[str, Any] = {"loss": 0.0}
    history = getattr(getattr(learner, "state", None), "log_history", [])
    earlier = len(history)
    with contextlib.redirect_stdout(io.StringIO()):
        learner.log(logs)
    logged = {name: value for entry in (*history[earlier:], logs) for name, value in entry.items()}
    return {name.removeprefix("train/"): value for name, value in logged.items()}
