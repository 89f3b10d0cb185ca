"""Parse the text of a parameter binding, such as ``bind={"adv": "advantage[B]"}``: column, axes, dtype."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch

from rl_sentinel.adapters.kit.codecs import Column, CumulativeLengths, Lengths, PromptIds, ResponseMask
from rl_sentinel.adapters.kit.forms import AfterPrompt, BeforeEnd, Packed, Padded, PerRow, Ragged
from rl_sentinel.adapters.kit.kl_of_tokens import KlOfTokens
from rl_sentinel.adapters.kit.masked_value import MaskedValue
from rl_sentinel.adapters.kit.padding_mask import PaddingMask
from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.adapters.kit.per_response import PerResponse, PerResponseOfPrompt
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.kit.sequence_model import (
    InputIds,
    PolicyLogits,
    PolicyModel,
    PromptTokens,
    SequenceMask,
    TargetIds,
)
from rl_sentinel.adapters.kit.user_layouts import (
    Grouped,
    GroupedColumn,
    GroupedTokens,
    GroupSize,
    PromptCount,
    PromptList,
    TrainedTokens,
)
from rl_sentinel.adapters.kit.value_codecs import Constant, Width
from rl_sentinel.adapters.kit.wrapped_forms import Array, OnePrompt, TimeFirst
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.codec import Codec, Form
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.core.phrasing import nearest, shortened

#: Role -> its binding, if the role is not a column.
BINDINGS: Mapping[str, str] = {
    "token_rewards": "token_rewards",
    "rewards_of_functions": "reward[B1]",
    "kl": "kl",
    "lengths": "lengths",
    "cumulative_lengths": "cu_seqlens",
    "group_size": "group_size",
    "strided_group_size": "strided_group_size",
    "prompt_count": "num_prompts",
    "trained_tokens": "trained_tokens",
}

#: Axes in a binding, without commas and spaces -> their meaning.
AXES = {
    "BT": "one number per token, padded",
    "B": "one number per response",
    "B1": "one number per response, as a column",
    "GK": "prompts by responses",
    "GKT": "prompts by responses by tokens",
    "Gragged": "a list with one tensor per prompt",
    "Glists": "a list with one list of numbers per prompt",
    "TB": "one number per token, padded, time first",
    "K": "one number per response of one prompt",
    "KT": "one number per token, padded, of the responses of one prompt",
    "Klist": "a list of numbers, one per response of one prompt",
    "N": "the tokens of all responses end to end",
    "ragged": "a list with one tensor per response",
    "list": "a list of numbers, one per response",
    "tensors": "a list of tensors, each one number of a response",
    "lists": "a list with one list of numbers per response",
}

#: The axes as they are written in the documentation: ``B T``, ``G ragged``.
WRITTEN_AXES = tuple(re.sub(r"(?<=[A-Z])(?=.)", " ", axes) for axes in AXES)

#: Dtypes in a binding.
DTYPES = {"bool": torch.bool, "int": torch.int64, "int64": torch.int64, "int32": torch.int32, "float": torch.float32}

#: Words in a binding that are not columns of the batch.
WORDS = (
    *("token_rewards", "lengths", "width", "cu_seqlens", "valid", "input_ids", "attention_mask"),
    *("masked_value", "padding", "kl", "kl_k2", "kl_k3"),
    *("completion_mask_of_sequence", "prompt_ids", "prompt_mask", "prompt_length", "model", "completion_ids"),
    *("labels", "group_size", "strided_group_size", "trained_tokens", "logits_of_sequence", "token_of_sequence"),
    *("response_logits", "sequence_logits", "response_labels", "num_prompts", "strided_num_prompts"),
    *("targets", "response_targets"),
)

#: Bindings of a KL per token -> its estimator.
_KLS: Mapping[str, Literal["k1", "k2", "k3"]] = {"kl": "k1", "kl_k2": "k2", "kl_k3": "k3"}

#: A text that is passed as it is.
_QUOTED = re.compile(r"'(?P<text>[^']*)'")

_TEXT = re.compile(r"(?P<name>\w+)?\s*(?:\[(?P<axes>[^\]]*)\])?\s*(?P<dtype>\w+)?")


def column_of(name: str) -> str:
    """The column (or other word of a binding) for a known parameter name; an unknown name is returned unchanged.

    Example:
        >>> from rl_sentinel.adapters.kit.bind_text import column_of
        >>> column_of("advs"), column_of("reward"), column_of("color")
        ('advantage', 'reward', 'color')
    """
    role = "" if name in COLUMNS or name in WORDS else role_of(name)
    return BINDINGS.get(role) or (ROLES[role].column if role else "") or name


def codec_of(text: str, default: str = "", *, array: bool = False, path: str = "") -> Codec:
    """The codec that a binding's text describes.

    Args:
        text: ``COLUMN``, ``COLUMN[AXES]`` or ``COLUMN[AXES] DTYPE``; the column may be a known parameter name. A
            text in single quotes is passed without the quotes.
        default: the column, if the text has only axes.
        array: pass columns and token rewards as numpy arrays; other bindings stay tensors. A label per response
            becomes a string, except in an array with a stated dtype.
        path: the parameter, for messages.

    Raises:
        Unbindable: if the column, the axes or the dtype does not exist.

    Example:
        >>> from rl_sentinel.adapters.kit.bind_text import codec_of
        >>> codec_of("advantage[B]")
        PerResponse(name='advantage', dims=0, grouped=False, listed=False)
        >>> codec_of("'k3'")
        Constant(value='k3')
    """
    if quoted := _QUOTED.fullmatch(text.strip()):
        return Constant(quoted["text"])
    match = _TEXT.fullmatch(text.strip())
    name = column_of((match["name"] or default) if match else "")
    known, place = (*COLUMNS, *WORDS), f"bind[{path}]" if path else "bind"
    axes, dtype = (re.sub(r"[\s,]", "", match["axes"] or ""), match["dtype"] or "") if match else ("", "")
    if match and match["axes"] is not None and axes not in AXES and (name in known or not name):
        known_axes = ", ".join(WRITTEN_AXES)
        raise Unbindable(f"{place} is {text!r}, whose axes are [{match['axes']}], expected one of {known_axes}")
    if match is None or name not in known:
        form = "expected COLUMN, COLUMN[AXES] or COLUMN[AXES] DTYPE, as in reward or reward[B, T] float"
        form = f"but there is no column {name}: {nearest(name, known)}" if name else form
        as_text = shortened(f"'{text.strip()}'")
        raise Unbindable(f"{place} is {shortened(text)}, {form}; to pass the text itself, quote it: {as_text}")
    if dtype and dtype not in DTYPES:
        raise Unbindable(f"{place} is {text!r}, whose dtype is {dtype}, expected one of {', '.join(DTYPES)}")
    codec = _codec(name, axes, DTYPES.get(dtype), array=array)
    return replace(codec, form=Array(codec.form)) if array and isinstance(codec, Column | TokenRewards) else codec


#: Words that have one layout -> their codec.
_OF_WORDS: Mapping[str, Codec] = {
    "width": Width(),
    "masked_value": MaskedValue(),
    "prompt_length": Lengths("prompt", PerRow("tensor")),
    "cu_seqlens": CumulativeLengths(),
    "input_ids": InputIds(),
    "attention_mask": SequenceMask("all"),
    "completion_mask_of_sequence": SequenceMask("trained"),
    "completion_ids": InputIds(response_only=True),
    "labels": TargetIds(),
    "response_labels": TargetIds(response_only=True),
    "targets": TargetIds(untrained=-1),
    "response_targets": TargetIds(response_only=True, untrained=-1),
    "response_logits": PolicyLogits(response_only=True),
    "sequence_logits": PolicyLogits(),
    "group_size": GroupSize(),
    "strided_group_size": GroupSize(strided=True),
    "num_prompts": PromptCount(),
    "strided_num_prompts": PromptCount(strided=True),
    "trained_tokens": TrainedTokens(),
    "prompt_ids": PromptTokens(),
    "prompt_mask": PromptTokens(mask=True),
    "model": PolicyModel(),
    "logits_of_sequence": Column("logits", BeforeEnd()),
    "token_of_sequence": Column("token", AfterPrompt()),
}


def word_of(codec: Codec) -> str:
    """The word of a binding with one layout, such as ``labels``, for its codec; empty for other codecs.

    Example:
        >>> from rl_sentinel.adapters.kit.bind_text import codec_of, word_of
        >>> word_of(codec_of("labels")), word_of(codec_of("reward"))
        ('labels', '')
    """
    return next((word for word, known in _OF_WORDS.items() if known == codec), "")


def _codec(name: str, axes: str, dtype: torch.dtype | None, *, array: bool) -> Codec:
    """The codec of a column or another word; a word with one layout ignores ``axes``."""
    if name in _OF_WORDS:
        return _OF_WORDS[name]
    if name == "lengths":
        return Lengths(form=PerRow("list" if axes == "list" else "tensor"))
    if name in COLUMNS:
        return _codec_of_column(name, axes, dtype, array=array)
    return _codec_of_tokens(name, _form(axes, per_token=True) or Padded(), dtype)


def _codec_of_column(name: str, axes: str, dtype: torch.dtype | None, *, array: bool) -> Codec:
    per_token = COLUMNS[name]["axes"].startswith("B T")
    form = _form(axes, per_token=per_token)
    if COLUMNS[name]["role"] == "label" and not per_token and axes in ("", "B", "list"):
        return _labels(name, dtype, listed=axes == "list", array=array)
    if per_token and axes in ("B", "B1", "GK", "list"):
        return PerResponse(name, int(axes == "B1"), axes == "GK", axes == "list")
    if per_token and axes in ("K", "Klist"):
        return PerResponseOfPrompt(name, listed=axes == "Klist")
    if name == "reward" and form is not None and axes in ("BT", "TB", "KT", "ragged", "lists"):
        return TokenRewards(form, dtype)
    kind = GroupedColumn if isinstance(form, Grouped) else Column
    return kind(name, dtype=dtype) if form is None else kind(name, form, dtype)


def _codec_of_tokens(word: str, form: Form, dtype: torch.dtype | None) -> Codec:
    """The codec of a word that means one number per token, and is not a column."""
    if word in _KLS:
        return KlOfTokens(_KLS[word], form)
    if word == "padding":
        return PaddingMask(form, dtype or torch.bool)
    if word == "valid":
        return ResponseMask(form, dtype or torch.int64)
    return TokenRewards(form, dtype)


def _labels(name: str, dtype: torch.dtype | None, *, listed: bool, array: bool) -> PromptIds:
    """The codec of one label per row, such as a prompt id.

    If the function takes numpy arrays (``array``), labels are strings, except in an array with a stated dtype;
    otherwise they are integers, in a list or a tensor.
    """
    if listed:
        return PromptIds("strings-list" if array else "list", name)
    if array:
        return PromptIds("strings" if dtype is None else "integers", name)
    return PromptIds("tensor", name)


def _form(axes: str, *, per_token: bool) -> Form | None:
    forms: dict[str, Form] = {
        "BT": Padded(),
        "B1": PerRow("column"),
        "GK": Grouped(),
        "GKT": GroupedTokens(),
        "Gragged": PromptList(),
        "Glists": PromptList(plain=True),
        "TB": TimeFirst(Padded()),
        "K": OnePrompt(PerRow("tensor")),
        "KT": OnePrompt(Padded()),
        "Klist": OnePrompt(PerRow("list")),
        "N": Packed() if per_token else PerRow("tensor"),
        "ragged": Ragged(),
        "list": PerRow("list"),
        "tensors": PerRow("tensors"),
        "lists": Ragged(plain=True),
    }
    return forms.get(axes)
