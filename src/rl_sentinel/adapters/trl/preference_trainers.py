"""Build TRL's preference and supervised trainers, and run their training step on known log-probs."""

import dataclasses
import importlib
import inspect
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.trl.liger import layers_unchanged, without_compiler
from rl_sentinel.adapters.trl.tiny_trainer import make_tokenizer
from rl_sentinel.adapters.trl.token_model import make_language_model, set_logprobs

#: Fields with which trainers are built, if their configuration has them.
DEFAULTS: Mapping[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "report_to": [],
    "disable_tqdm": True,
    "per_device_train_batch_size": 2,
    "gradient_checkpointing": False,
    "remove_unused_columns": False,
    "max_length": None,
    "max_prompt_length": None,
    "max_completion_length": None,
}

#: Functions with which a constructor checks for packages that only one method needs.
OPTIONAL_PACKAGES = ("is_sklearn_available", "is_joblib_available")

PAIR = {"prompt": "w1 w2", "chosen": "w3 w4", "rejected": "w5"}
TRIPLE = {**PAIR, "reference": "w6 w7"}
LABELED = {"prompt": "w1 w2", "completion": "w3 w4"}


def make_pair_trainer(  # noqa: PLR0913 - what a trainer is built from
    trainer: Callable[..., Any],
    rows: Sequence[Mapping[str, Any]] = (),
    padding: str = "<pad>",
    attention: str = "",
    scores: int = 2,
    tokenizer: Callable[[], Any] = make_tokenizer,
    **settings: Any,  # noqa: ANN401 - of its configuration
) -> Any:  # noqa: ANN401 - a trainer
    """A trainer, built by its constructor and its configuration class.

    Args:
        trainer: the class.
        rows: the data set; :func:`default_rows` if empty.
        padding: the padding token of the tokenizer.
        attention: the attention implementation in the model's configuration; empty for the default.
        scores: the number of labels in the model's configuration.
        tokenizer: builds the tokenizer.
        settings: fields of the configuration, or arguments of the constructor in releases without a configuration.
    """
    from datasets import Dataset  # noqa: PLC0415 - in the target's overlay

    args, arguments = configuration_of(trainer, settings)
    if "processing_class" in inspect.signature(trainer.__init__).parameters:
        tokenizers = {"processing_class": tokenizer()}
    else:
        tokenizers = {"tokenizer": tokenizer()}
    words = next(iter(tokenizers.values()))
    words.bos_token, words.pad_token = getattr(words, "bos_token", None) or "<eos>", padding
    model = make_language_model()
    model.config.num_labels = scores
    if attention:
        model.config._attn_implementation = attention  # noqa: SLF001 - trainers read the name there
    without_optional_packages(trainer)
    other_models = {"ref_model", "teacher_model"} & set(inspect.signature(trainer).parameters)
    reference = {name: deepcopy(model) for name in other_models}
    with layers_unchanged():
        built = trainer(
            model=model,
            args=args,
            train_dataset=Dataset.from_list([dict(row) for row in rows or default_rows(trainer)]),
            **tokenizers,
            **reference,
            **arguments,
        )
    return without_compiler(built)


def default_rows(trainer: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a class of the target
    """Rows for the constructor: pairs, triples, or labeled responses, depending on the trainer."""
    source = inspect.getsource(importlib.import_module(trainer.__module__))
    if '"reference_ids"' in source:
        return [TRIPLE] * 2
    labels = 'example["label"]' in source or 'batch["completion"]' in source
    labeled = labels and "unpair_preference_dataset" not in source
    return [{**LABELED, "label": label} for label in (True, False)] if labeled else [PAIR] * 2


def without_optional_packages(trainer: Any) -> None:  # noqa: ANN401 - a class of the target
    """Report optional packages as installed. The constructor asks for them, but no setting used here calls them."""
    module = importlib.import_module(trainer.__module__)
    for name in OPTIONAL_PACKAGES:
        if hasattr(module, name):
            setattr(module, name, _available)


def _available() -> bool:
    """Whether a package is installed; always True."""
    return True


def configuration_of(trainer: Any, settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401 - a class of the target
    """The configuration of a trainer, and the settings that are arguments of its constructor.

    Releases with a configuration class have all settings in the configuration, others have none there.
    """
    try:
        module = importlib.import_module(trainer.__module__.replace("_trainer", "_config"))
    except ModuleNotFoundError:
        from transformers import TrainingArguments  # noqa: PLC0415 - in the target's overlay

        own = {field.name for field in dataclasses.fields(TrainingArguments)}
        built = {name: value for name, value in DEFAULTS.items() if name in own}
        return TrainingArguments(**{"output_dir": tempfile.mkdtemp(), **built}), dict(settings)
    config = getattr(module, trainer.__name__.replace("Trainer", "Config"))
    fields = {field.name: field for field in dataclasses.fields(config)}
    chosen = {name: field_value(fields[name], value) for name, value in settings.items()}
    built = {name: value for name, value in DEFAULTS.items() if name in fields}
    return config(**{"output_dir": tempfile.mkdtemp(), **built, **chosen}), {}


def field_value(field: Any, value: Any) -> Any:  # noqa: ANN401 - a field of a configuration, and a setting
    """Convert a setting to the type of the field's default: an enum member, a list of one item, or the value."""
    default = field.default
    if isinstance(default, Enum):
        return type(default)(value)
    several = default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING
    return [value] if several and isinstance(field.default_factory(), list) else value


def start_optimizer_step(
    trainer: Any,  # noqa: ANN401 - a trainer
    micro_batches: int,
    max_length: int | None = None,
    *,
    cuts: bool = False,
) -> Any:  # noqa: ANN401 - a trainer
    """A copy of the trainer at the start of an optimizer step, with an empty log.

    With ``cuts``, sequences longer than ``max_length`` are truncated.
    """
    ready = copy(trainer)
    ready.args = copy(trainer.args)
    ready.current_gradient_accumulation_steps = ready.args.gradient_accumulation_steps = micro_batches
    for name in ("_metrics", "_stored_metrics"):
        if hasattr(trainer, name):
            setattr(ready, name, defaultdict(lambda: defaultdict(list)))
    if hasattr(trainer, "running"):
        ready.running = deepcopy(trainer.running)
    if cuts:
        ready.data_collator = copy(trainer.data_collator)
        for holder in (ready, ready.args, ready.data_collator):
            if hasattr(holder, "max_length"):
                holder.max_length = max_length
    return ready


def train_on_logprobs(
    entry: Callable[..., Any],
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    logprobs: Tensor,
    ref_logprobs: Tensor | None = None,
) -> Tensor:
    """Train on one micro-batch, collated by the trainer, and return the loss.

    Policy and reference return these log-probs. ``entry`` is not called here: it names the audited method, which the
    training step calls.
    """
    set_logprobs(learner.model, logprobs)
    if ref_logprobs is not None:
        set_logprobs(learner.ref_model, ref_logprobs)
    return train_one_batch(entry, learner, learner.data_collator(features))


def train_one_batch(entry: Callable[..., Any], learner: Any, inputs: dict[str, Any]) -> Tensor:  # noqa: ANN401 - a trainer
    """Run a training step on a collated batch, and return the loss, scaled for accumulation."""
    if "num_items_in_batch" in inspect.signature(entry).parameters:
        loss: Tensor = learner.training_step(learner.model, inputs, None)
        return loss
    loss = learner.compute_loss(learner.model, inputs)  # the training step of transformers before 4.46
    loss = loss / learner.args.gradient_accumulation_steps
    learner.accelerator.backward(loss)
    return loss.detach()


def batch_samples(trainer: Any, batches: list[Any]) -> tuple[list[Any], Any]:  # noqa: ANN401 - a trainer, a number of tokens
    """The batches of an optimizer step and the number of their labels, computed by the trainer's method."""
    device = {"device": torch.device("cpu")}
    takes_device = "device" in inspect.signature(trainer.get_batch_samples).parameters
    samples, tokens = trainer.get_batch_samples(iter(batches), len(batches), **(device if takes_device else {}))
    return samples, tokens


def make_supervised_trainer(trainer: Callable[..., Any], **settings: Any) -> Any:  # noqa: ANN401 - a trainer
    """A supervised trainer on prompts with completions, or on plain texts in releases that accept only texts."""
    rows = [{"prompt": "w1 w2", "completion": "w3 w4"}, {"prompt": "w5", "completion": "w6 w7 w8"}]
    masked = "completion_mask" in inspect.getsource(importlib.import_module(trainer.__module__))
    plain = [{"text": f"{row['prompt']} {row['completion']}"} for row in rows]
    return make_pair_trainer(trainer, rows=rows if masked else plain, **settings)
