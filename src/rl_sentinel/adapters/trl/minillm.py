"""TRL's MiniLLM over micro-batches: the loss of sampled completions with advantages from the teacher."""

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Earlier
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself, micro_batch, training, trains_whole_completions
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.self_distillation import Model
from rl_sentinel.adapters.trl.tiny_trainer import Policy
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

TRAINER = "trl.experimental.minillm.minillm_trainer.MiniLLMTrainer"

#: Setting -> fields of the configuration; the loss is GRPO's mean over the tokens of each completion.
SETTINGS: Mapping[str, Settings] = {
    "default": {"loss_type": "grpo"},
    "discounted": {"loss_type": "grpo", "gamma": 0.5, "length_normalization": False},
}

_MASKED = claims(
    "minillm_trainer.py, _single_step_decomposition_loss and _compute_advantage, docstrings: the mask selects the "
    "tokens to include, excluding padding"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss, without and with a discount."""
    path = f"{TRAINER}.compute_loss"
    if not target.has(path):
        return
    if why := target.fails(TRAINER):
        yield Unbound(path, "policy-loss", why)
        return
    known = fields_of(target, TRAINER)
    yield from bindable(
        target, *(_loss(path, name, settings) for name, settings in SETTINGS.items() if set(settings) <= set(known))
    )


class Student(Policy):
    """A fake trained model with known logits, and with the log-probs of the completions under these logits."""

    is_gradient_checkpointing = False

    def __init__(self, logits: Tensor, tokens: Tensor) -> None:
        """Store ``[B, T, V]`` logits, and the tokens ``[B, T]`` of the completions."""
        self.model, self.tokens = Model(logits), tokens
        logprobs = logits.log_softmax(-1)
        Policy.__init__(
            self,
            logprobs.gather(2, tokens.unsqueeze(2)).squeeze(2),
            -(logprobs.exp() * logprobs).sum(2).detach(),
        )

    def __call__(self, **inputs: Any) -> Any:  # noqa: ANN401 - as a model of transformers
        """The model output with the logits."""
        return self.model(**inputs)


def distil(
    entry: Callable[..., Tensor],
    learner: Any,  # noqa: ANN401 - a trainer
    student: Student,
    teacher: Model,
    inputs: dict[str, Tensor],
) -> Tensor:
    """Compute the loss of a micro-batch."""
    ready = copy(learner)
    ready.teacher_model = teacher
    return entry(ready, student, dict(inputs))


def _loss(path: str, name: str, settings: Settings) -> Boundary:
    before = Step(call=itself, name="trainer", arguments={"trainer": training("grpo", settings, derived=TRAINER)})
    student = Object(Student, {"logits": Column("logits"), "tokens": Column("token")}, at={"logits": "model.logits"})
    step = Step(
        call=distil,
        name="loss",
        arguments={
            "entry": Constant(Function(path)),
            "learner": Earlier(Use("trainer")),
            "student": student,
            "teacher": Object(Model, {"logits": Column("ref_logits")}),
            "inputs": micro_batch({}, tools=False),
        },
        each=("micro_batch",),
        produced_by={"inputs": "grpo_trainer.py, _generate_and_score_completions, which MiniLLMTrainer inherits"},
    )
    return Boundary(
        path=path,
        stage="aggregate",
        steps=(before, step),
        unused=frozenset({"prompt_length"}),
        outputs={"loss": Output("", "", "loss", at=Use("loss"), join="sum")},
        settings={name: settings},
        claims=_MASKED,
        reach=", ".join(f"{k}={v}" for k, v in settings.items()),
        requires=(equal_micro_batches, no_empty_response, every_row_trains, trains_whole_completions),
    )
