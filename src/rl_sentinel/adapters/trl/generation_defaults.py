"""TRL's sampling with transformers, where the model has sampling options of its own, as most published models have."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.arriving_settings import arriving_outputs
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.value_codecs import Constant, IfSet
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import TRAINERS
from rl_sentinel.adapters.trl.distillation import GKD, GKD_EXPERIMENTAL
from rl_sentinel.adapters.trl.distillation_steps import make_student
from rl_sentinel.adapters.trl.nash_md import NASH, NASH_EXPERIMENTAL
from rl_sentinel.adapters.trl.online_dpo import ONLINE, ONLINE_EXPERIMENTAL
from rl_sentinel.adapters.trl.pair_samplers import make_pair_sampler, prompts_of
from rl_sentinel.adapters.trl.preferences import trainer_path
from rl_sentinel.adapters.trl.release import fields_of, source_of
from rl_sentinel.adapters.trl.rollout_fakes import ready_to_train
from rl_sentinel.adapters.trl.sampling import sampling_path
from rl_sentinel.adapters.trl.sampling_engine_fakes import arguments
from rl_sentinel.adapters.trl.self_play import XPO, XPO_EXPERIMENTAL
from rl_sentinel.adapters.trl.tiny_trainer import make_trainer
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import NotApplicable

#: The options of the model, in the file ``generation_config.json`` of a published model.
OF_MODEL: Mapping[str, Any] = {
    "do_sample": True,
    "temperature": 0.6,
    "top_p": 0.95,
    "top_k": 20,
    "repetition_penalty": 1.1,
}

#: The options of the trainer, as its configuration's docstrings define sampling from the policy itself.
OF_TRAINER: Settings = {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0}

#: Options that the configuration leaves off: 0 means that they are off.
LEFT_OFF: Settings = {"top_k": 0, "min_new_tokens": 0}

_DOCS = (
    "grpo_config.py and online_dpo_config.py: temperature, top_p, repetition_penalty; None or 0 disables "
    "top-k-filtering; a maximum of new tokens, but no minimum"
)


class SampledError(Exception):
    """Raised in place of sampling: the options are known."""


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the options with which each trainer's model samples."""
    for kind, owner in TRAINERS.items():
        path = sampling_path(target, owner)
        if target.has(path) and not target.fails(owner) and "generation_config" in source_of(target.find(path)):
            yield from bindable(target, _options(target, path, owner, make_own_sampler, {"kind": Constant(kind)}))
    for make, *paths in STEPS:
        owner = trainer_path(target, *paths)
        path = f"{owner}.training_step"
        if target.has(path) and not target.fails(owner) and "training_step" in vars(target.find(owner)):
            yield from bindable(target, _options(target, path, owner, make, {"kind": Constant(Function(owner))}))


def make_own_sampler(kind: str, **settings: Any) -> Any:  # noqa: ANN401 - a trainer
    """A trainer that samples with transformers from a model with options of its own."""
    return with_own_options(make_trainer(kind, **settings))


def make_own_pair_sampler(kind: Callable[..., Any], **settings: Any) -> Any:  # noqa: ANN401 - a trainer
    """A trainer that samples pairs from a model with options of its own."""
    return with_own_options(make_pair_sampler(kind, "model", **settings))


def make_own_student(kind: Callable[..., Any], **settings: Any) -> Any:  # noqa: ANN401 - a trainer
    """A trainer whose student has options of its own, and samples in each step."""
    return with_own_options(make_student(kind, 0.5, lmbda=1.0, **settings))


def with_own_options(trainer: Any) -> Any:  # noqa: ANN401 - a trainer
    """The trainer, after its model got options."""
    trainer.model.generation_config.update(**OF_MODEL)
    return trainer


def options_in_effect(entry: Callable[..., Any], trainer: Any) -> dict[str, float]:  # noqa: ANN401 - a trainer
    """The numeric options with which the model samples, after transformers has added the model's; others are 0."""
    sent = dict[str, Any]()
    ready, given = trainer, {"model": trainer.model, "inputs": distilled_prompts()}
    if hasattr(trainer, "policies"):  # samples pairs
        given["inputs"] = prompts_of(trainer, 2)
    elif entry.__name__ != "training_step":
        ready = ready_to_train(trainer, 1)
        given = arguments(entry, [[3], [4]])

    def generate(*_inputs: object, generation_config: Any = None, **more: object) -> None:  # noqa: ANN401 - of transformers
        prepared, _ = ready.model._prepare_generation_config(generation_config)  # noqa: SLF001 - as its generate
        sent.update({**prepared.to_dict(), **more})
        raise SampledError

    ready.model.generate = generate
    with suppress(SampledError):
        entry(ready, **given)
        raise NotApplicable("the model does not sample in this method")
    del ready.model.generate
    return defaultdict(float, {name: float(value) for name, value in sent.items() if isinstance(value, int | float)})


def distilled_prompts() -> dict[str, Tensor]:
    """Two prompts, as the collator of distillation makes them."""
    prompts = torch.tensor([[4, 5], [4, 6]])
    return {"prompts": prompts, "prompt_attention_mask": torch.ones_like(prompts)}


#: How a trainer is built that samples in its training step, and its paths.
STEPS: tuple[tuple[Any, ...], ...] = (
    (make_own_pair_sampler, ONLINE, ONLINE_EXPERIMENTAL),
    (make_own_pair_sampler, XPO, XPO_EXPERIMENTAL),
    (make_own_pair_sampler, NASH, NASH_EXPERIMENTAL),
    (make_own_student, GKD, GKD_EXPERIMENTAL),
)


def _options(target: Target, path: str, owner: str, make: Callable[..., Any], built: Mapping[str, Codec]) -> Boundary:
    known = fields_of(target, owner)
    settings = {name: value for name, value in OF_TRAINER.items() if name in known}
    off = {name: value for name, value in LEFT_OFF.items() if name in known or name not in OF_MODEL}
    trainer = Object(
        make,
        {**built, **{name: IfSet(name) for name in settings}},
        at={**dict.fromkeys(built, "__class__"), **{name: f"args.{name}" for name in settings}},
        shared=True,
    )
    return one_call(
        path=path,
        stage="config",
        call=options_in_effect,
        name="sent",
        arguments={"entry": Constant(Function(path)), "trainer": trainer},
        remembered=True,
        outputs=arriving_outputs(Use("sent"), {name: name for name in (*settings, *off)}),
        settings={"a model with sampling options": {**settings, **off}},
        claims=claims(_DOCS),
        reach=f"{' or '.join(f'{name}={value}' for name, value in settings.items())}, and a model whose "
        "generation_config.json, written by transformers 4.50 or newer, has another value",
    )
