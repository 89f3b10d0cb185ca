"""Convert the tiny Llama and its character tokenizer to transformers."""

from typing import Any

from rl_sentinel.train.model.character_tokenizer import CHARACTERS, END, PADDING, VOCABULARY_SIZE
from rl_sentinel.train.model.policy import Policy


def as_transformers(policy: Policy) -> tuple[Any, Any]:
    """A model and a tokenizer of transformers with the weights and the vocabulary of a policy of the tiny Llama."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415 - an extra
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: PLC0415 - an extra

    shape: Any = policy.model.shape
    config = LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        max_position_embeddings=shape.positions,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=PADDING,
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(policy.model.state_dict())
    vocabulary = {"_": PADDING, "$": END} | {letter: n + 2 for n, letter in enumerate(CHARACTERS)}
    # The vocabulary has no token for unknown characters, so that they are refused, as by the character tokenizer.
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="unknown"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    return model, PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="$", pad_token="_")  # noqa: S106 - as above
