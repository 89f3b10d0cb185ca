"""Real trainers of TRL on a tiny random model and a tokenizer built on the spot, and the doubles that they call."""

import dataclasses
import importlib
import inspect
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from functools import partial
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
    """A reward function whose rewards, times its weight, are the case's outcomes by row."""

    def __init__(self, name: str, weight: float, values: Sequence[float | None] = ()) -> None:
        """Take the name under which its numbers are logged, its weight, and the outcomes."""
        self.__name__ = name
        self.weight = weight
        self.values = list(values)

    def __call__(self, prompts: Sequence[str], **_columns: object) -> list[float | None]:
        """One reward per row."""
        scored = [None if value is None else value / self.weight for value in self.values]
        return scored or [0.0] * len(prompts)


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
    weight = settings.pop("reward_weight", 1.0)
    settings |= {"reward_weights": [weight]} if weight != 1.0 else {}
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
        reward_funcs=[RowRewards("first", weight)],
        args=args,
        train_dataset=Dataset.from_list([{"prompt": "w1"}] * 2),
        processing_class=make_tokenizer(),
    )
    made.beta = made.args.beta = beta
    made.ref_model = nn.Identity() if beta else None
    if vllm:
        made.use_vllm = made.args.use_vllm = True
    return made


@dataclasses.dataclass
class Rollout:
    """What the engine, the reward function and forward passes answer for one rollout."""

    completions: list[list[int]] = dataclasses.field(default_factory=list)
    rewards: list[float | None] = dataclasses.field(default_factory=list)
    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    sampler_logprobs: list[list[float]] | None = None
    env_mask: list[list[int]] | None = None


def forward(rollout: Rollout, answers: int, reference: Any, model: Any, *args: Any, **_more: object) -> Any:  # noqa: ANN401 - as the method
    """A forward pass of the policy, the reference or the old policy, with as many answers as the release has."""
    entropies: Tensor | None = None
    if isinstance(model, Policy):
        logprobs: Tensor | None = model.logprobs
        entropies = model.entropies
    else:
        known = rollout.ref_logprobs if model is reference else rollout.old_logprobs
        logprobs = None if known is None else known[:, : args[2]]
    return (logprobs, entropies, None)[:answers] if answers > 1 else logprobs


def ready_to_train(trainer: Any, micro_batches: int, rollout: Rollout | None = None) -> Any:  # noqa: ANN401 - a trainer
    """The trainer before the first micro-batch of an optimizer step: nothing is logged, accumulation is known."""
    ready = copy(trainer)
    ready.args = copy(trainer.args)
    ready.model.train()
    ready._metrics = (  # noqa: SLF001 - where the trainer logs
        {mode: defaultdict(list) for mode in ("train", "eval")} if "train" in trainer._metrics else defaultdict(list)  # noqa: SLF001
    )
    ready.current_gradient_accumulation_steps = ready.args.gradient_accumulation_steps = micro_batches
    if hasattr(ready.args, "steps_per_generation"):
        ready.args.steps_per_generation = micro_batches
    name, answers = "_get_per_token_logps_and_entropies", 1
    if hasattr(type(trainer), name):
        answers = 3 if "compute_aux_loss" in inspect.signature(getattr(type(trainer), name)).parameters else 2
    else:
        name = "_get_per_token_logps"
    setattr(ready, name, partial(forward, rollout or Rollout(), answers, ready.ref_model))
    return ready


def ready_to_score(trainer: Any, generations: int, **answers: Any) -> Any:  # noqa: ANN401 - a trainer
    """The trainer before a rollout whose tokens, rewards and log-probs are known; nothing is logged yet."""
    rollout = Rollout(**answers)
    ready = ready_to_train(trainer, 1, rollout)
    ready.rollout = rollout
    ready.num_generations = ready.args.num_generations = generations
    (reward,) = trainer.reward_funcs
    ready.reward_funcs = [RowRewards(reward.__name__, reward.weight, rollout.rewards)]
    if hasattr(ready, "_generate_single_turn"):
        source = inspect.getsource(inspect.unwrap(type(trainer)._generate_single_turn))  # noqa: SLF001
        order = [name.strip() for name in source.rpartition("return ")[2].split(",")]
        ready._generate_single_turn = partial(generate_turn, rollout, order)  # noqa: SLF001
    else:
        ready.model.generate = partial(generate, rollout)
    if hasattr(ready, "rollout_func"):
        ready.rollout_func = None if rollout.env_mask is None else partial(generate_in_environment, rollout)
    return ready


def generate_turn(rollout: Rollout, order: list[str], *_arguments: object, **_more: object) -> Any:  # noqa: ANN401 - as the method
    """The known tokens, in the order of what the release returns."""
    answers: dict[str, Any] = {
        "prompt_ids": [[4]] * len(rollout.completions),
        "completion_ids": rollout.completions,
        "logprobs": rollout.sampler_logprobs,
        "forward_kwargs": {},
        "extra_fields": {},
    }
    found = tuple(answers[name] for name in order)
    return found if len(found) > 1 else found[0]


def generate(rollout: Rollout, input_ids: Tensor, **_options: object) -> Tensor:
    """Prompts and completions, padded at the right as ``generate`` of transformers pads them."""
    width = max(map(len, rollout.completions))
    rows = torch.tensor([ids + [PADDING] * (width - len(ids)) for ids in rollout.completions])
    return torch.cat([input_ids, rows], 1)


def generate_in_environment(rollout: Rollout, prompts: Sequence[Any], *_trainer: object) -> dict[str, Any]:
    """What a rollout function returns, with 0 at tokens that an environment wrote."""
    ids = {"prompt_ids": [[4]] * len(prompts), "completion_ids": rollout.completions}
    return {**ids, "logprobs": rollout.sampler_logprobs, "env_mask": rollout.env_mask}
