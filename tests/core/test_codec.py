"""Sizes of a batch, merged from several arguments; a codec that carries nothing."""

import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.codec import Codec, Form, Inputs, Sizes, merge_sizes

BATCH = batch_of(torch.ones(2, 1).bool())


def test_sizes_complete_each_other() -> None:
    length = torch.tensor([1, 2])
    merged = merge_sizes([Sizes(rows=2), Sizes(rows=3, length=length), Sizes(width=4)])
    assert (merged.rows, merged.width, merged.length) == (2, 4, length)
    assert merged.has(frozenset({"rows", "width", "length"}))
    assert not merged.has(frozenset({"rows", "mask"}))


def test_a_mini_batch_is_the_whole_of_a_cut() -> None:
    part = batch_of(torch.ones(1, 1).bool())
    assert Inputs(BATCH).mini_batch is BATCH
    assert Inputs(part, whole=BATCH).mini_batch is BATCH


def test_a_plain_codec_carries_nothing() -> None:
    plain = Codec()
    assert (plain.columns, plain.shapes, plain.axes) == (frozenset(), frozenset(), frozenset())
    assert (plain.take(1, Sizes()), plain.knobs(1), plain.canonical(BATCH), plain.references(1)) == ({}, {}, {}, [])
    assert Form().source("x", Sizes()) == "x"
