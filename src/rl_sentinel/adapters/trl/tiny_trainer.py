"""Build real TRL trainers with a tiny random model and a small tokenizer, and fakes for policy and reward function."""

import dataclasses
import importlib.util
import tempfile
from collections.abc import Sequence
from inspect import getsource, signature
from typing import Any

from torch import Tensor, nn

from rl_sentinel.adapters.trl.liger import layers_unchanged, without_compiler

#: Number of words of the tokenizer, without padding, EOS and unknown.
WORDS = 29

END, PADDING = 1, 0

#: The word that starts texts, in tokenizers with such a token.
START = "w26"

#: A space, in the alphabet of tokenizers of bytes.
SPACE = "\u0120"

#: The chat template: a word for the role, the message, and EOS.
TEMPLATE = (
    "{% for message in messages %}{{ 'w28 ' if message['role'] == 'assistant' else 'w27 ' }}{{ message['content'] }}"
    "{{ ' <eos> ' }}{% endfor %}{% if add_generation_prompt %}{{ 'w28 ' }}{% endif %}"
)


class Policy:
    """A fake policy with the log-probs and entropies of a forward pass on the batch."""

    def __init__(self, logprobs: Tensor, entropies: Tensor) -> None:
        """Store ``[B, T]`` log-probs and entropies."""
        self.logprobs, self.entropies = logprobs, entropies
        self.training = True

    def train(self) -> None:
        """Do nothing: the policy is always in training mode."""


class RowRewards:
    """A reward function. The outcome of a row in the batch is the reward times the function's weight."""

    def __init__(self, name: str, weight: float, values: Sequence[float | None] = ()) -> None:
        """Store the name that logs use, the weight, and the outcomes."""
        self.__name__ = name
        self.weight = weight
        self.values = list(values)

    def __call__(self, prompts: Sequence[str], *_completions: object, **_columns: object) -> list[float | None]:
        """One reward per row; 0 if no outcomes are stored."""
        scored = [None if value is None else value / self.weight for value in self.values]
        return scored or [0.0] * len(prompts)


def largest_rewards(group_rewards: list[list[float]], **_more: object) -> list[list[float]]:
    """A group filter that scores each completion by its reward."""
    return group_rewards


def make_tokenizer() -> Any:  # noqa: ANN401 - a tokenizer of transformers
    """A tokenizer of whole words that pads on the left, as trainers that generate require."""
    from tokenizers import pre_tokenizers  # noqa: PLC0415 - in the target's overlay

    return _tokenizer([f"w{n}" for n in range(WORDS)], pre_tokenizers.Whitespace())


def make_starting_tokenizer() -> Any:  # noqa: ANN401 - a tokenizer of transformers
    """A tokenizer with a token that starts texts. As in Llama, the chat template and every encoded text have it."""
    from tokenizers import processors  # noqa: PLC0415 - in the target's overlay

    tokenizer = make_tokenizer()
    tokenizer.bos_token, tokenizer.chat_template = START, "{{ bos_token + ' ' }}" + TEMPLATE
    number = tokenizer.convert_tokens_to_ids(START)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, number)]
    )
    return tokenizer


def make_byte_tokenizer() -> Any:  # noqa: ANN401 - a tokenizer of transformers
    """A byte-level tokenizer for the same words. As in BPE, a space is part of the token of the next word."""
    from tokenizers import Regex, decoders, pre_tokenizers  # noqa: PLC0415 - in the target's overlay

    words = [f"{space}w{n}" for n in range(WORDS) for space in ("", SPACE)]
    split = pre_tokenizers.Split(Regex(" ?[^ ]+| +"), "isolated")
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = _tokenizer([*words, SPACE], pre_tokenizers.Sequence([split, in_bytes]))
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def make_character_tokenizer() -> Any:  # noqa: ANN401 - a tokenizer of transformers
    """A tokenizer with one token per byte, which can encode any text."""
    from tokenizers import Regex, decoders, pre_tokenizers  # noqa: PLC0415 - in the target's overlay

    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = _tokenizer(sorted(pre_tokenizers.ByteLevel.alphabet()), pre_tokenizers.Sequence([in_bytes, split]))
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _tokenizer(vocabulary: list[str], pre_tokenizer: Any) -> Any:  # noqa: ANN401 - of tokenizers, of transformers
    from tokenizers import Tokenizer, models  # noqa: PLC0415 - in the target's overlay
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    words = ["<pad>", "<eos>", "<unk>", *vocabulary]
    plain = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))  # noqa: S106 - a token of a vocabulary
    plain.pre_tokenizer = pre_tokenizer
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>", "chat_template": TEMPLATE}
    return PreTrainedTokenizerFast(tokenizer_object=plain, padding_side="left", **special)


def make_model(vocabulary: int = WORDS + 3) -> Any:  # noqa: ANN401 - a model of transformers
    """A causal language model of one layer with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - in the target's overlay

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "max_position_embeddings": 64}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=vocabulary, pad_token_id=PADDING, eos_token_id=END, **sizes, **heads)
    )
    model.name_or_path = model.config._name_or_path = "tiny"  # noqa: SLF001 - trainers read the name there
    return model


#: Kind of a trainer -> the start of its class names, where it is not in capitals.
_NAMES = {"distillation": "Distillation"}


def make_trainer(kind: str, derived: Any = None, engine: str = "", **settings: Any) -> Any:  # noqa: ANN401 - a class of the target, a trainer
    """A trainer of the audited TRL, built by its constructor and its configuration class.

    Args:
        kind: ``"grpo"``, ``"rloo"``, or ``"distillation"``, which has a teacher and no reward.
        derived: a subclass of that trainer, which may have a separate configuration class.
        engine: the mode of a vLLM engine that the constructor starts; the caller replaces the function that starts it.
        settings: fields of the configuration; the configuration raises on a field that the release lacks. A reference
            policy (``beta``) and ``use_vllm`` are set after construction: the constructor would download the policy
            and start an engine.
    """
    from datasets import Dataset  # noqa: PLC0415 - in the target's overlay

    name = _NAMES.get(kind, kind.upper())
    config = getattr(importlib.import_module(f"trl.trainer.{kind}_config"), f"{name}Config")
    trainer = getattr(importlib.import_module(f"trl.trainer.{kind}_trainer"), f"{name}Trainer")
    # Until February 2025 GRPO asks the reference at beta 0, too.
    always_asked = kind == "grpo" and "beta == 0" not in getsource(trainer)
    more: dict[str, Any] = {}
    if derived is not None:
        trainer, place = derived, derived.__module__.replace("_trainer", "_config")
        if importlib.util.find_spec(place):
            config = getattr(importlib.import_module(place), derived.__name__.replace("Trainer", "Config"), config)
        extra = {"group_filter_func": largest_rewards, "teacher_model": make_model()}
        more = {name: part for name, part in extra.items() if name in signature(derived).parameters}
    beta, vllm = settings.pop("beta", 0.0), settings.pop("use_vllm", False)
    weight = settings.pop("reward_weight", 1.0)
    settings |= {"use_vllm": True, "vllm_mode": engine} if engine else {}
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
    args = config(**{name: value for name, value in built.items() if name in known} | settings)
    scores = kind != "distillation"
    more |= {"reward_funcs": [RowRewards("first", weight)]} if scores else {"teacher_model": make_model()}
    with layers_unchanged():
        trainer_ = trainer(
            model=make_model(),
            args=args,
            train_dataset=Dataset.from_list([{"prompt": "w1"}] * 2),
            processing_class=make_tokenizer(),
            **more,
        )
    without_compiler(trainer_)
    trainer_.model.train()
    trainer_.beta = trainer_.args.beta = beta
    trainer_.ref_model = nn.Identity() if beta or always_asked else None
    if vllm:
        trainer_.use_vllm = trainer_.args.use_vllm = True
    return trainer_
