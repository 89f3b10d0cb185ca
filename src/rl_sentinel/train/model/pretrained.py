"""Policies that transformers loads, from a folder or by a name; called as ``llama.Llama`` is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.policy import Policy


@dataclass(slots=True)
class Memory:
    """The cache of transformers; rows are kept as ``llama.Cache`` keeps them."""

    inner: Any

    def keep(self, rows: Int[Tensor, " n"]) -> None:
        """Go on with these rows alone."""
        self.inner.batch_select_indices(rows)


class Pretrained(nn.Module):
    """A causal language model of transformers, with the trainer's own keywords."""

    def __init__(self, inner: nn.Module) -> None:
        """The model is kept as it is."""
        super().__init__()
        self.inner = inner

    def forward(
        self,
        token: Int[Tensor, "B S"],
        *,
        real: Bool[Tensor, "B K"] | None = None,
        cache: Memory | None = None,
        last: bool = False,
    ) -> Float[Tensor, "B S V"]:
        """Logits of what follows each token; the arguments are those of ``llama.Llama.forward``."""
        more: dict[str, Any] = {"use_cache": cache is not None}
        if real is not None:
            place = (real.cumsum(1) - 1).clamp(min=0)[:, -token.shape[1] :]
            more |= {"attention_mask": real.long(), "position_ids": place}
        if cache is not None:
            more["past_key_values"] = cache.inner
        logits: Tensor = self.inner(input_ids=token, **more).logits
        return logits[:, -1:] if last else logits

    def memory(self, width: int) -> Memory:  # noqa: ARG002 - it grows by itself
        """An empty cache."""
        from transformers import DynamicCache  # noqa: PLC0415 - an extra

        return Memory(DynamicCache())

    @property
    def layers(self) -> list[nn.Module]:
        """What is sharded one by one."""
        return list(self.inner.get_decoder().layers)  # type: ignore[operator]  # a model of transformers


class Tokens:
    """The text of a tokenizer of transformers."""

    def __init__(self, tokenizer: Any, name: str, positions: int | None = None) -> None:  # noqa: ANN401 - transformers is an extra
        """Its end is the end of a response; ``positions`` is the longest sequence that the model reads.

        Raises:
            SentinelError: if it has no end.
        """
        if tokenizer.eos_token_id is None:
            raise SentinelError(
                f"policy.load {name} has a tokenizer without an end, expected eos_token: it ends a response"
            )
        self._tokenizer, self.end, self.positions = tokenizer, int(tokenizer.eos_token_id), positions
        self.padding = self.end if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)

    def ids(self, text: str) -> tuple[int, ...]:
        """The ids of a text, with nothing added."""
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids, without the end."""
        return str(self._tokenizer.decode([i for i in ids if i != self.end], skip_special_tokens=False))


def require_there() -> None:
    """Ask for what loads a policy, before a run has a folder.

    Raises:
        SentinelError: if transformers is not installed.

    Example:
        >>> from rl_sentinel.train.model.pretrained import require_there
        >>> require_there()  # doctest: +SKIP
    """
    try:
        import transformers  # noqa: F401, PLC0415 - an extra, which may be there and not import
    except ImportError as error:
        way = "pip install 'rl-sentinel[train]'"
        raise SentinelError(f"policy.load needs transformers, which is not installed: {way}") from error


def loaded(name: str, *, precision: str = "fp32") -> Policy:
    """A policy of transformers, its weights in float32.

    Raises:
        SentinelError: if transformers is not installed, or does not find or know the model.
    """
    require_there()
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - an extra

    try:
        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(name)
    except Exception as error:  # files of any content; what they raise is transformers' and safetensors' affair
        words = str(error).partition("\n")[0] or type(error).__name__
        raise SentinelError(f"policy.load {name!r} cannot be loaded ({words}): name a folder or a model") from error
    text = Tokens(tokenizer, name, getattr(model.config, "max_position_embeddings", None))
    return Policy(Pretrained(model.train(mode=False)), text, precision=precision)
