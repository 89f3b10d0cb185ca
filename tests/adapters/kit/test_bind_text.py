"""The text of a binding: column, axes, dtype."""

import re

import pytest
import torch

from rl_sentinel.adapters.kit.bind_text import AXES, WORDS, WRITTEN_AXES, codec_of, column_of
from rl_sentinel.adapters.kit.codecs import Column, Lengths, PromptIds, ResponseMask
from rl_sentinel.adapters.kit.forms import Padded, PerRow, Ragged
from rl_sentinel.adapters.kit.per_response import PerResponse
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.kit.wrapped_forms import Array, TimeFirst
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("mask", Column("mask")),
        ("advantage[B T]", Column("advantage", Padded())),
        ("advantage[T, B]", Column("advantage", TimeFirst(Padded()))),
        ("advantage[B]", PerResponse("advantage")),
        ("advs[B1]", PerResponse("advantage", 1)),
        ("mask[ragged] int32", Column("mask", Ragged(), torch.int32)),
        ("reward[list]", Column("reward", PerRow("list"))),
        ("reward[B T]", TokenRewards(Padded(), None)),
        ("group", PromptIds("tensor")),
        ("group[list]", PromptIds("list")),
        ("lengths[list]", Lengths(form=PerRow("list"))),
        ("valid", ResponseMask(Padded(), torch.int64)),
        ("  'mask'  ", Constant("mask")),
    ],
)
def test_a_text_is_one_codec(text: str, codec: Codec) -> None:
    assert codec_of(text) == codec


def test_functions_of_numpy_arrays_get_arrays() -> None:
    assert codec_of("mask", array=True) == Column("mask", Array(Column("mask").form))
    kinds = {text: codec_of(text, array=True) for text in ("group", "group int", "group[list]")}
    assert kinds == {
        "group": PromptIds("strings"),
        "group int": PromptIds("integers"),
        "group[list]": PromptIds("strings-list"),
    }


def test_axes_alone_keep_the_column() -> None:
    assert codec_of("[B]", "advantage") == codec_of("advantage[B]")


@pytest.mark.parametrize("name", [*COLUMNS, *WORDS])
def test_every_word_has_a_codec(name: str) -> None:
    assert isinstance(codec_of(name), Codec)


@pytest.mark.parametrize(("axes", "written"), list(zip(AXES, WRITTEN_AXES, strict=True)))
def test_documented_axes_are_accepted(axes: str, written: str) -> None:
    assert codec_of(f"advantage[{written}]") == codec_of(f"advantage[{axes}]")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("maks", "the nearest is 'mask'"),
        ("mask[BX]", "whose axes are [BX], expected one of B T, B, B 1,"),
        ("mask float64", "whose dtype is float64, expected one of bool, int, int64, int32, float"),
        ("mask [B] [T]", "expected COLUMN, COLUMN[AXES] or COLUMN[AXES] DTYPE"),
        ("k 3!", "to pass the text itself, quote it: \"'k 3!'\""),
        ("", "expected COLUMN"),
    ],
)
def test_other_texts_are_refused(text: str, words: str) -> None:
    with pytest.raises(Unbindable, match=re.escape(words)):
        codec_of(text)


def test_known_parameter_names_are_columns() -> None:
    assert [column_of(name) for name in ("advantages", "old_log_probs", "mask", "unheard_of")] == [
        "advantage",
        "old_logprob",
        "mask",
        "unheard_of",
    ]
