"""Policies loaded by transformers, from a folder or by name, with the interface of ``llama.Llama``."""

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import reason_of
from rl_sentinel.train.model.chat_template import Message
from rl_sentinel.train.model.device import CPU
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.readout import Readout, logits

#: What ``policy.load`` may name.
_NAME_ONE = "name a folder that save_pretrained wrote, a model of the Hugging Face Hub, or the folder of a run"


@dataclass(slots=True)
class TransformersCache:
    """The KV cache of transformers, with ``select`` as in ``llama.Cache``."""

    inner: Any

    def select(self, rows: Int[Tensor, " n"]) -> None:
        """Keep only these rows."""
        self.inner.batch_select_indices(rows)


class PretrainedModel(nn.Module):
    """A causal language model of transformers, called with the trainer's keywords."""

    def __init__(self, inner: nn.Module, *, projects: bool | None = None) -> None:
        """Wrap a model; ``projects``: its logits are a product with the head's weight (None finds out by a trial)."""
        super().__init__()
        self.inner = inner
        self.projects, self.recompute = _projects(inner) if projects is None else projects, False
        reads = inspect.signature(inner.forward).parameters
        self._cache_keyword = "cache" if "cache" in reads else "past_key_values"  # renamed in transformers 5.24

    @property
    def head(self) -> Tensor | None:
        """The weight of the output projection; None if the logits are not a plain product with it."""
        return self.inner.get_output_embeddings().weight if self.projects else None  # type: ignore[operator]  # a model of transformers

    def replace_head(self, head: nn.Linear) -> None:
        """Replace the output projection; the embeddings keep a weight that it shared with them."""
        self.inner.set_output_embeddings(head)  # type: ignore[operator]  # a model of transformers

    def forward(
        self,
        token: Int[Tensor, "B S"],
        *,
        key_mask: Bool[Tensor, "B K"] | None = None,
        cache: TransformersCache | None = None,
        last: bool = False,
        of: Readout = logits,
    ) -> Float[Tensor, "..."]:
        """See ``llama.Llama.forward``."""
        kwargs: dict[str, Any] = {"use_cache": cache is not None}
        for layer in self.layers if self.recompute else ():
            # transformers recomputes layers in training mode only; dropout, in the modules below, stays off
            layer.training = cache is None and torch.is_grad_enabled()
        if key_mask is not None:
            position = (key_mask.cumsum(1) - 1).clamp(min=0)[:, -token.shape[1] :]
            kwargs |= {"attention_mask": key_mask.long(), "position_ids": position}
        if cache is not None:
            kwargs[self._cache_keyword] = cache.inner
        if self.projects:
            states: Tensor = self.inner.get_decoder()(input_ids=token, **kwargs).last_hidden_state  # type: ignore[operator]  # as above
        else:
            states = self.inner(input_ids=token, **kwargs).logits
        return of(states[:, -1:] if last else states, self.head)

    def enable_recompute(self) -> None:
        """See ``llama.Llama.enable_recompute``."""
        self.inner.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})  # type: ignore[operator]  # as above
        self.recompute = True
        for layer in self.layers:
            _switch_off_dropout(layer)

    def new_cache(self, width: int) -> TransformersCache:  # noqa: ARG002 - this cache grows by itself
        """An empty KV cache."""
        from transformers import DynamicCache  # noqa: PLC0415 - an extra

        return TransformersCache(DynamicCache())

    @property
    def layers(self) -> list[nn.Module]:
        """The layers, which FSDP shards one by one.

        Raises:
            SentinelError: if the model has no list of layers.
        """
        parts = self.inner.get_decoder().children()  # type: ignore[operator]  # a model of transformers
        lists = [list(part) for part in parts if isinstance(part, nn.ModuleList)]
        if not lists:
            raise SentinelError(
                f"policy.load is a {type(self.inner).__name__} without a list of layers, which policy.recompute and "
                "several processes need: train with one process and policy.recompute=false, or choose another model"
            )
        return max(lists, key=len)


def _switch_off_dropout(layer: nn.Module) -> None:
    """Set the dropout of a layer's own code, as in OPT and Falcon, to 0; its modules stay in evaluation mode."""
    settings = [layer]
    if hasattr(layer, "config"):
        layer.config = copy.copy(layer.config)  # the model's own is exported
        settings.append(layer.config)  # type: ignore[arg-type]  # an object with fields
    for owner in settings:
        for name in [n for n, value in vars(owner).items() if "drop" in n and isinstance(value, float)]:
            setattr(owner, name, 0.0)


@torch.no_grad()
def _projects(inner: nn.Module) -> bool:
    """Whether the logits are the product of the decoder's last hidden states with the head's weight, and no more."""
    head = getattr(inner, "get_output_embeddings", lambda: None)()
    if head is None or getattr(head, "bias", None) is not None or not hasattr(inner, "get_decoder"):
        return False
    if getattr(inner.config, "final_logit_softcapping", None):  # not seen while logits are small
        return False
    token = torch.zeros(1, 1, dtype=torch.long, device=head.weight.device)
    states = inner.get_decoder()(input_ids=token, use_cache=False).last_hidden_state  # type: ignore[operator]  # as above
    return torch.allclose(logits(states, head.weight), inner(input_ids=token, use_cache=False).logits)


class PretrainedTokenizer:
    """A tokenizer of transformers; its EOS token and the EOS tokens of the model's generation config end a response."""

    def __init__(
        self,
        tokenizer: Any,  # noqa: ANN401 - transformers is an extra
        name: str,
        positions: int | None = None,
        more_ends: Sequence[int] = (),
    ) -> None:
        """Store ``positions``, the longest sequence of the model in tokens, and ``more_ends``, further end tokens.

        Raises:
            SentinelError: if no token ends a response.
        """
        own_ends = () if tokenizer.eos_token_id is None else (int(tokenizer.eos_token_id),)
        self._tokenizer, self.ends, self.positions = tokenizer, tuple(dict.fromkeys((*own_ends, *more_ends))), positions
        if not self.ends:
            raise SentinelError(
                f"policy.load {name!r} has no end token, expected one or more to end a response: set eos_token in "
                "tokenizer_config.json, or eos_token_id in generation_config.json"
            )
        self.padding = self.ends[0] if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)

    @property
    def end_texts(self) -> tuple[str, ...]:
        """The texts of the end tokens."""
        return tuple(str(text) for text in self._tokenizer.convert_ids_to_tokens(list(self.ends)))

    def encode(self, text: str) -> tuple[int, ...]:
        """The token ids of a text, without added special tokens."""
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without end tokens."""
        return str(self._tokenizer.decode([i for i in ids if i not in self.ends], skip_special_tokens=False))

    def render(self, messages: Sequence[Message], template: str | None) -> str:
        """Render a conversation.

        Raises:
            SentinelError: if the tokenizer has no chat template, or the template rejects the conversation.
        """
        if template is None and not self._tokenizer.chat_template:
            raise SentinelError(
                'chat.template is "tokenizer", but the tokenizer has no chat template: set chat.template to a Jinja '
                "file"
            )
        conversation, options = [dict(m) for m in messages], {"tokenize": False, "add_generation_prompt": True}
        try:
            return str(self._tokenizer.apply_chat_template(conversation, chat_template=template, **options))
        except Exception as error:  # templates raise errors of many types
            which, fix = "chat.template", "fix the Jinja file"
            if template is None:
                which, fix = "the tokenizer's chat template", "set chat.template to a Jinja file"
            raise SentinelError(f"{which} cannot render a conversation ({reason_of(error)}): {fix}") from error


def require_transformers(what: str) -> None:
    """Check that transformers imports; ``what`` is the key or command that needs it.

    Raises:
        SentinelError: if it does not.
    """
    try:
        import transformers  # noqa: F401, PLC0415 - an extra, which may be there and not import
    except ImportError as error:
        fix = "pip install 'rl-sentinel[train]'"
        raise SentinelError(
            f"{what} needs transformers, which cannot be imported ({reason_of(error)}): {fix}"
        ) from error


def load_policy(name: str, *, precision: str = "fp32", device: torch.device = CPU) -> Policy:
    """Load a policy with transformers, with weights in float32.

    Raises:
        SentinelError: if transformers is not installed or cannot load the model, or no token ends a response.
    """
    require_transformers("policy.load")
    require_folder(name)
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - an extra

    try:
        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(name)
    except Exception as error:  # for bad files transformers and safetensors raise errors of many types
        raise SentinelError(
            f"policy.load {name!r} cannot be loaded ({reason_of(error)}): fix this, or {_NAME_ONE}"
        ) from error
    positions = getattr(model.config, "max_position_embeddings", None)
    wrapped = PretrainedTokenizer(tokenizer, name, positions, _configured_ends(model))
    return Policy(PretrainedModel(model.train(mode=False).to(device)), wrapped, precision=precision)


def require_folder(name: str) -> None:
    """Reject a path that does not exist, which transformers would look for on the Hub.

    Raises:
        SentinelError: if the name is a missing path: absolute, starting with a dot, or in an existing folder.
    """
    path = Path(name).expanduser()
    is_path = path.is_absolute() or name.startswith(".") or (len(path.parts) > 1 and path.parent.is_dir())
    if is_path and not path.exists():
        raise SentinelError(f"policy.load {name!r} cannot be loaded (no such folder): {_NAME_ONE}")


def init_pretrained(name: str, *, precision: str = "fp32") -> tuple[Policy, Any]:
    """A policy with the shapes of a model and random weights, and the configuration of the model in transformers.

    Raises:
        SentinelError: if transformers is not installed or cannot read the model's files, or no token ends a response.
    """
    require_transformers("policy.load")
    require_folder(name)
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - an extra

    try:
        config, tokenizer = AutoConfig.from_pretrained(name), AutoTokenizer.from_pretrained(name)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    except Exception as error:  # as in load_policy
        raise SentinelError(
            f"policy.load {name!r} cannot be read ({reason_of(error)}): fix this, or {_NAME_ONE}"
        ) from error
    positions = getattr(config, "max_position_embeddings", None)
    wrapped = PretrainedTokenizer(tokenizer, name, positions, _configured_ends(model))
    return Policy(PretrainedModel(model, projects=True), wrapped, precision=precision), config


def _configured_ends(model: Any) -> tuple[int, ...]:  # noqa: ANN401 - transformers is an extra
    """The end tokens in a model's generation config, such as end-of-message beside end-of-text."""
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return () if ends is None else tuple(ends) if isinstance(ends, (list, tuple)) else (int(ends),)
