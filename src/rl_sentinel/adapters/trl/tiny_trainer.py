"""Real trainers of TRL on a tiny random model and a tokenizer built on the spot, and the doubles that they call."""

import dataclasses
import importlib
import inspect
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

#: Words of the tokenizer beside padding, end and unknown.
WORDS = 29

END, PADDING = 1, 0


class Policy(nn.Module):
    """A model double: the log-probs and entropies that a forward pass on the case's tokens would give."""

    def __init__(self, logprobs: Tensor, entropies: Tensor) -> None:
        """Take ``[B, T]`` log-probs and entropies."""
        super().__init__()
        self.logprobs, self.entropies = logprobs, entropies


class RowRewards:
    """A reward function that returns the case's rewards by row."""

    def __init__(self, name: str) -> None:
        """Take the name under which its numbers are logged."""
        self.__name__ = name
        self.values: list[float | None] = []

    def __call__(self, prompts: Sequence[str], **_columns: object) -> list[float | None]:
        """One reward per row."""
        return self.values or [0.0] * len(prompts)


def make_tokenizer() -> Any:  # noqa: ANN401 - a tokenizer of transformers
    """A tokenizer of whole words, with padding at the left as trainers of generated text ask for."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415 - in the target's overlay
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    words = ["<pad>", "<eos>", "<unk>", *(f"w{n}" for n in range(WORDS))]
    plain = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))  # noqa: S106 - a token of a vocabulary
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=plain, padding_side="left", **special)


def make_model() -> Any:  # noqa: ANN401 - a model of transformers
    """A causal language model of one layer with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - in the target's overlay

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "max_position_embeddings": 64}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=WORDS + 3, pad_token_id=PADDING, eos_token_id=END, **sizes, **heads)
    )
    model.name_or_path = model.config._name_or_path = "tiny"  # noqa: SLF001 - where trainers read a name
    return model


def make_trainer(kind: str, **settings: Any) -> Any:  # noqa: ANN401 - a trainer
    """A trainer of the target, made by its own constructor from its own configuration.

    ``kind`` is ``"grpo"`` or ``"rloo"``. A reference policy and a vLLM engine are put in after construction: the
    constructor would look for the one on the hub and start the other. Fields that a release lacks are left out where
    they say how the trainer is built, and refused where they are settings.
    """
    from datasets import Dataset  # noqa: PLC0415 - in the target's overlay

    config = getattr(importlib.import_module(f"trl.trainer.{kind}_config"), f"{kind.upper()}Config")
    trainer = getattr(importlib.import_module(f"trl.trainer.{kind}_trainer"), f"{kind.upper()}Trainer")
    beta, vllm = settings.pop("beta", 0.0), settings.pop("use_vllm", False)
    built = {
        "output_dir": tempfile.mkdtemp(),
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "disable_tqdm": True,
        "per_device_train_batch_size": 2,
        "num_generations": 2,
        "max_prompt_length": None,
        "beta": 0.0,
    }
    known = {field.name for field in dataclasses.fields(config)}
    args = config(**{name: value for name, value in built.items() if name in known}, **settings)
    made = trainer(
        model=make_model(),
        reward_funcs=[RowRewards("first")],
        args=args,
        train_dataset=Dataset.from_list([{"prompt": "w1"}] * 2),
        processing_class=make_tokenizer(),
    )
    made.beta = made.args.beta = beta
    made.ref_model = nn.Identity() if beta else None
    if vllm:
        made.use_vllm = made.args.use_vllm = True
    return _with_doubles(made)


def _with_doubles(trainer: Any) -> Any:  # noqa: ANN401 - a trainer
    """Forward passes answered by doubles, in the form of the release."""
    name = "_get_per_token_logps_and_entropies"
    together = hasattr(trainer, name)
    with_aux = together and "compute_aux_loss" in inspect.signature(getattr(trainer, name)).parameters

    def forward(model: Any, *args: Any, **_kwargs: object) -> Any:  # noqa: ANN401 - as the method
        logprobs: Tensor | None
        entropies: Tensor | None
        if isinstance(model, Policy):
            logprobs, entropies = model.logprobs, model.entropies
        else:
            known = trainer.rollout.ref_logprobs if model is trainer.ref_model else trainer.rollout.old_logprobs
            logprobs, entropies = None if known is None else known[:, : args[2]], None
        if not together:
            return logprobs
        return (logprobs, entropies, None) if with_aux else (logprobs, entropies)

    setattr(trainer, name if together else "_get_per_token_logps", forward)
    return trainer


def ready_to_train(trainer: Any, micro_batches: int) -> Any:  # noqa: ANN401 - a trainer
    """The trainer before the first micro-batch of an optimizer step: nothing is logged, accumulation is known."""
    trainer.model.train()
    for logged in trainer._metrics.values() if "train" in trainer._metrics else (trainer._metrics,):  # noqa: SLF001
        logged.clear()
    trainer.current_gradient_accumulation_steps = micro_batches
    trainer.args.gradient_accumulation_steps = micro_batches
    if hasattr(trainer.args, "steps_per_generation"):
        trainer.args.steps_per_generation = micro_batches
    return trainer


@dataclasses.dataclass
class Rollout:
    """What the engine, the reward function and forward passes answer for one rollout."""

    completions: list[list[int]]
    rewards: list[float | None] = dataclasses.field(default_factory=list)
    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    sampler_logprobs: list[list[float]] | None = None
    env_mask: list[list[int]] | None = None


def ready_to_score(trainer: Any, generations: int, **rollout: Any) -> Any:  # noqa: ANN401 - a trainer
    """The trainer before a rollout whose tokens, rewards and log-probs are known; nothing is logged yet."""
    ready_to_train(trainer, 1)
    trainer.rollout = given = Rollout(**rollout)
    trainer.num_generations = trainer.args.num_generations = generations
    trainer.reward_funcs[0].values = given.rewards
    if hasattr(trainer, "_generate_single_turn"):
        _replace_turn(trainer, given)
    else:
        trainer.model.generate = lambda input_ids, **_options: _with_prompt(input_ids, given.completions)
    if hasattr(trainer, "rollout_func"):
        trainer.rollout_func = None if given.env_mask is None else lambda prompts, *_more: _environment(prompts, given)
    return trainer


def _replace_turn(trainer: Any, given: Rollout) -> None:  # noqa: ANN401 - a trainer
    """Answer ``_generate_single_turn`` with the known tokens, in the order of what the release returns."""
    source = inspect.getsource(inspect.unwrap(type(trainer)._generate_single_turn))  # noqa: SLF001
    order = [name.strip() for name in source.rpartition("return ")[2].split(",")]
    rows = len(given.completions)
    answers: dict[str, Any] = {
        "prompt_ids": [[4]] * rows,
        "completion_ids": given.completions,
        "logprobs": given.sampler_logprobs,
        "forward_kwargs": {},
        "extra_fields": {},
    }
    found = tuple(answers[name] for name in order)
    trainer._generate_single_turn = lambda *_a, **_k: found if len(found) > 1 else found[0]  # noqa: SLF001


def _with_prompt(prompt_ids: Tensor, completions: list[list[int]]) -> Tensor:
    """Prompts and completions, padded at the right as ``generate`` pads them."""
    width = max(map(len, completions))
    rows = torch.tensor([ids + [PADDING] * (width - len(ids)) for ids in completions])
    return torch.cat([prompt_ids, rows], 1)


def _environment(prompts: Sequence[Any], given: Rollout) -> dict[str, Any]:
    """What a rollout function returns, with 0 at tokens that an environment wrote."""
    ids = {"prompt_ids": [[4]] * len(prompts), "completion_ids": given.completions}
    return {**ids, "logprobs": given.sampler_logprobs, "env_mask": given.env_mask}
