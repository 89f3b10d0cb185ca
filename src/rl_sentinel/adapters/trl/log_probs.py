"""TRL's log-probs and entropy, computed from the logits of a model at the sampling temperature."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, RLOO
from rl_sentinel.adapters.trl.logit_model import compute_log_probs, logit_trainer
from rl_sentinel.adapters.trl.release import config_fields, method
from rl_sentinel.adapters.trl.self_distillation import TRAINERS, Model
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import Claims, claims

_CITE = (
    "grpo_config.py, temperature: temperature for sampling; grpo_trainer.py, _get_per_token_logps: the logits are "
    "divided by the sampling temperature, the log-probs are those of the completion"
)

_CLAIMS = claims(_CITE, output_algorithms={"logprob": "log-prob of the token"}, knobs={"temperature": (0.7, 1.6)})
_ENTROPY = claims(_CITE, output_algorithms={"entropy": "entropy of the logits"}, knobs={"temperature": (0.7, 1.6)})

_PRODUCER = (
    "grpo_trainer.py, _generate_and_score_completions: left-padded prompts, right-padded completions; a model of "
    "transformers returns the logits of each next token, or of the last logits_to_keep tokens"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of log-probs and entropies of GRPO and RLOO, and of log-probs that self-distillation reuses."""
    for kind, owner in (("grpo", GRPO), ("rloo", RLOO)):
        path = method(target, owner, "_get_per_token_logps_and_entropies", "_get_per_token_logps")
        if not target.has(path) or target.fails(path) or "temperature" not in config_fields(target, kind):
            continue
        yield from bindable(target, _boundary(target, path, kind, "logprob", _CLAIMS | claims(_CITE, gradient="own")))
        if path.endswith("entropies"):
            yield from bindable(target, _boundary(target, path, kind, "entropy", _ENTROPY))
    for trainer in TRAINERS:
        path = f"{trainer}._compute_rollout_logps"
        if target.has(path) and not target.fails(trainer):
            yield from bindable(target, _of_rollout(path, trainer))


def score_rollout(  # noqa: PLR0913 - a trainer's class and settings, and its batch
    entry: Callable[..., Tensor],
    kind: type,
    temperature: float,
    logits: Tensor,
    completion_ids: Tensor,
    completion_mask: Tensor,
) -> Tensor:
    """Compute the log-probs of completions after prompts of one token; each completion is used in two iterations."""
    trainer = bare_instance(
        kind,
        model=Model(logits),
        args=SimpleNamespace(steps_per_generation=1, gradient_accumulation_steps=1),
        num_iterations=2,
        temperature=temperature,
        model_kwarg_keys=frozenset({"logits_to_keep"}),
    )
    prompts = torch.ones_like(completion_ids[:, :1])
    return entry(trainer, prompts, prompts, completion_ids, completion_mask)


def _of_rollout(path: str, trainer: str) -> Boundary:
    return one_call(
        path=path,
        stage="batch",
        call=score_rollout,
        name="computed",
        arguments={
            **functions(entry=path, kind=trainer),
            "temperature": Knob("temperature"),
            "logits": Column("logits"),
            "completion_ids": Column("token"),
            "completion_mask": ResponseMask(),
        },
        produced_by={"completion_mask": "sample_rollouts: completions padded at the right"},
        outputs={"logprob": Output("B T", "nats", "logprob", at=Use("computed"), form=Padded())},
        settings={"logprob": {"temperature": 0.5}},
        claims=_CLAIMS,
        reach="num_iterations above 1",
        requires=(no_empty_response,),
    )


def _boundary(target: Target, path: str, kind: str, output: str, claimed: Claims) -> Boundary:
    parameters = inspect.signature(target.find(path)).parameters
    chunks = {"batch_size": Constant(2)} if "batch_size" in parameters else {}
    return one_call(
        path=path,
        stage="batch",
        call=compute_log_probs,
        name="computed",
        arguments={
            "trainer": Object(
                logit_trainer, {"kind": Constant(kind), "temperature": Knob("temperature")}, _PLACES, shared=True
            ),
            "logits": Column("logits"),
            "completion_ids": Column("token"),
            "completion_mask": ResponseMask(),
            **chunks,
        },
        produced_by={"logits": _PRODUCER},
        outputs={output: Output("B T", "nats", output, at=Use("computed")[output], form=Padded())},
        settings={output: {"temperature": 1.0}},
        claims=claimed,
        reach="every training step; temperature",
        requires=(no_empty_response,),
    )


#: Argument of :func:`logit_trainer` -> its place in the trainer.
_PLACES = {"kind": "kind", "temperature": "args.temperature"}
