"""TRL's self-distillation (SDFT, and SDPO without its policy loss): ``compute_loss`` over micro-batches."""

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import completions, itself, trains_whole_completions
from rl_sentinel.adapters.trl.logit_model import of_shared_weights
from rl_sentinel.adapters.trl.sdpo import TRAINER as SDPO
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

TRAINERS = ("trl.experimental.sdft.sdft_trainer.SDFTTrainer", SDPO)

#: Setting -> the share of the teacher in the mixture.
ALPHAS: Mapping[str, Settings] = {
    "full logits": {"mixture": 0.5},
    "full logits, alpha 0.1": {"mixture": 0.1},
    "full logits, alpha 0": {"mixture": 0.0},
    "full logits, alpha 1": {"mixture": 1.0},
}

#: The number of tokens of the teacher's prompt, which also contains the privileged context.
TEACHER_PROMPT = 3

_LOSS = (
    claims(
        "loss_utils.py, compute_divergence: KL of the teacher at alpha 0, of the student at 1, their mixture between",
        algorithm="generalized jsd",
    )
    | claims(
        "_compute_self_distillation_loss, docstring: aggregate by normalizing over sequence length; loss.mean()",
        aggregation="sequence-mean-token-mean",
        rows="all",
    )
    | claims("compute_loss: divided by current_gradient_accumulation_steps", denominator="given")
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss of each trainer at each mixture weight."""
    for path in TRAINERS:
        method = f"{path}._compute_self_distillation_loss"
        if not target.has(method) or not target.has(f"{path}.compute_loss"):
            continue
        if why := target.fails(path):
            yield Unbound(f"{path}.compute_loss", "aggregate", why)
            continue
        made = (loss(path, name, alpha, make_distiller, Model) for name, alpha in ALPHAS.items())
        more = ", loss_type=grpo" if _has_loss_types(target.find(method)) else ""
        yield from bindable(target, *(replace(one, reach=one.reach + more) for one in made))


def _has_loss_types(method: Callable[..., Any]) -> bool:
    """Whether the loss of a release is aggregated by ``loss_type``, as in spring 2026."""
    return "self.loss_type" in inspect.getsource(sys.modules[inspect.unwrap(method).__module__])


class Model:
    """A fake model with known logits at the tokens of the completions, and 0 elsewhere."""

    training = True

    #: The attribute of a trainer that contains its teacher.
    place = "teacher_model"

    def __init__(self, logits: Tensor) -> None:
        """Store ``[B, T, V]`` logits."""
        self.logits = logits

    def eval(self) -> None:
        """Do nothing."""

    def __call__(self, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int = 0, **_more: object) -> Any:  # noqa: ANN401 - as a model of transformers
        """Logits ``[B, S, V]`` of the token after each position; the last position predicts no token.

        Raises:
            ValueError: if the attention mask has another shape than the ids.
        """
        if attention_mask.shape != input_ids.shape:
            message = f"attention_mask has shape {tuple(attention_mask.shape)}, expected {tuple(input_ids.shape)}"
            raise ValueError(message)
        places = input_ids.shape[1] - self.logits.shape[1] - 1
        before = self.logits.new_zeros(len(input_ids), places, self.logits.shape[2])
        whole = torch.cat([before, self.logits, torch.zeros_like(self.logits[:, :1])], 1)
        whole = of_shared_weights(whole, self.logits)
        return SimpleNamespace(logits=whole[:, -logits_to_keep:] if logits_to_keep else whole)


def make_distiller(kind: Any, alpha: float, teacher: object, micro_batches: int) -> Any:  # noqa: ANN401 - a class of the target
    """A bare trainer with the attributes that its loss reads."""
    arguments = SimpleNamespace(
        distillation_mode="full_logits", distillation_alpha=alpha, distillation_weight=1.0, distillation_is_clip=None
    )
    # The same choices, by the names of spring 2026.
    vars(arguments).update(full_logit_distillation=True, distillation_topk=None, distillation_add_tail=False)
    arguments.sdpo_policy_loss_mode = "distillation_only"
    return bare_instance(
        kind,
        args=arguments,
        teacher_model=teacher,
        use_teacher_server=False,
        use_liger_loss=False,
        num_loss_tokens_to_skip=0,
        loss_type="grpo",
        temperature=1.0,
        model_kwarg_keys=frozenset({"logits_to_keep"}),
        current_gradient_accumulation_steps=micro_batches,
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(gather=itself),
        _get_teacher_context_for_self_distillation=nullcontext,
        _metrics={mode: defaultdict(list) for mode in ("train", "eval")},
    )


def distil(entry: Callable[..., Any], distiller: Any, model: Model, inputs: Mapping[str, Tensor]) -> Tensor:  # noqa: ANN401 - a trainer
    """Compute the loss of a micro-batch. The teacher reads each completion after a longer prompt."""
    before = inputs["prompt_mask"].new_ones(len(inputs["prompt_ids"]), TEACHER_PROMPT)
    teacher = {
        "teacher_input_ids": torch.cat([before, inputs["completion_ids"]], 1),
        "teacher_attention_mask": torch.cat([before, inputs["completion_mask"]], 1),
    }
    loss: Tensor = entry(distiller, model, {**inputs, **teacher})
    return loss


def loss(path: str, name: str, settings: Settings, make: Callable[..., Any], teacher: type[Any]) -> Boundary:
    """The boundary of the loss of a trainer, which ``make`` builds.

    The trainer stores its teacher in the attribute ``teacher.place``.
    """
    trainer = Object(
        make,
        {
            "kind": Constant(Function(path)),
            "alpha": Knob("mixture"),
            "teacher": Object(teacher, {"logits": Column("ref_logits")}),
            "micro_batches": MICRO_BATCHES,
        },
        at={
            "kind": "__class__",
            "alpha": "args.distillation_alpha",
            "teacher": teacher.place,
            "micro_batches": "current_gradient_accumulation_steps",
        },
    )
    return one_call(
        path=f"{path}.compute_loss",
        stage="aggregate",
        call=distil,
        name="loss",
        arguments={
            "entry": Constant(Function(f"{path}.compute_loss")),
            "distiller": trainer,
            "model": Object(Model, {"logits": Column("logits")}),
            "inputs": Table(completions(tools=False)),
        },
        each=("micro_batch",),
        produced_by={"inputs": "sample_rollouts: completions padded at the right; teacher prompts with their context"},
        unused=frozenset({"token", "prompt_length"}),
        outputs={"loss": Output("", "nats", "loss", at=Use("loss"), join="sum")},
        settings={name: settings},
        claims=_LOSS,
        reach=f"distillation_mode={name.partition(',')[0]}, distillation_alpha={settings['mixture']}",
        requires=(equal_micro_batches, no_empty_response, trains_whole_completions),
    )
