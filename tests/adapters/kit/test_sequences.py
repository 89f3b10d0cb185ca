"""Sequences of prompt and response: what is laid out, and what is read back from values written by hand."""

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import Column, CumulativeLengths
from rl_sentinel.adapters.kit.containers import EachPrompt, Table
from rl_sentinel.adapters.kit.observation import observe
from rl_sentinel.adapters.kit.sequences import (
    AttentionMask,
    FullSequence,
    PackedSequence,
    PromptBatches,
    TokenVersions,
)
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Step
from rl_sentinel.core.codec import Inputs, Sizes
from rl_sentinel.core.layout import Layout

#: Prompts of two and of one token, responses of one and of three.
SIZES = Sizes(rows=2, width=3, prompt_length=torch.tensor([2, 1]), length=torch.tensor([1, 3]))
LOGPROB = torch.tensor([[-1.0, 9.0, 9.0], [-2.0, -3.0, -4.0]])


def _batch() -> Batch:
    mask = torch.tensor([[True, False, False], [True, False, True]])
    lengths = {"prompt_length": SIZES.prompt_length, "length": SIZES.length}
    return batch_of(mask, logprob=LOGPROB, **{n: x for n, x in lengths.items() if x is not None})


def _evaluated(source: str, value: Tensor) -> Tensor:
    result: Tensor = eval(source, {"torch": torch, "x": value})  # noqa: S307 - source of a form
    return result


def test_full_sequences_end_with_the_longest() -> None:
    """Four positions: one prompt token and three response tokens; layouts may add more."""
    assert FullSequence().lay_out(LOGPROB, Inputs(_batch())).tolist() == [[0, 0, -1, 0], [0, -2, -3, -4]]
    shifted = FullSequence(shift=1, fill=-0.5)
    assert shifted.lay_out(LOGPROB, Inputs(_batch())).tolist() == [[-0.5, -1, -0.5, 0], [-2, -3, -4, -0.5]]
    wider = Inputs(_batch(), layout=Layout(extra=1))
    assert shifted.lay_out(LOGPROB, wider).tolist() == [[-0.5, -1, -0.5, 0, 0], [-2, -3, -4, -0.5, 0]]


def test_full_sequences_read_back() -> None:
    """The response alone, 0 in the padding; a script reads the same."""
    value = torch.tensor([[7.0, -1.0, 8.0, 0.0], [-2.0, -3.0, -4.0, 8.0]])
    wanted = [[-1, 0, 0], [-2, -3, -4]]
    form = FullSequence(shift=1)
    assert form.read(value, SIZES).tolist() == wanted
    assert _evaluated(form.source("x", SIZES), value).tolist() == wanted
    assert form.canonical(LOGPROB, _batch()).tolist() == wanted


def test_each_prompt_is_padded_to_its_own_longest() -> None:
    """Three responses of two prompts: a list of two, of two rows and of one, and back."""
    mask = torch.tensor([[True, True], [True, False], [True, False]])
    lengths = {"length": torch.tensor([2, 1, 1]), "prompt_length": torch.tensor([1, 1, 1])}
    logprob = torch.tensor([[-1.0, -2.0], [-3.0, 0.0], [-4.0, 0.0]])
    batch = batch_of(mask, logprob=logprob, group=torch.tensor([7, 7, 3]), **lengths)
    parts = {"mask": AttentionMask(), "versions": TokenVersions(), "logp": Column("logprob", FullSequence())}
    codec = EachPrompt(Table(parts))
    prompts = codec.put(Inputs(batch))
    assert [one["logp"].tolist() for one in prompts] == [[[0, -1, -2], [0, -3, 0]], [[0, -4]]]
    assert codec.columns == {"group", "logprob", "version"}
    assert codec.sizes(prompts).rows == 3
    sizes = Sizes(rows=3, width=2, length=lengths["length"], prompt_length=lengths["prompt_length"])
    assert torch.equal(codec.take(prompts, sizes)["logprob"], logprob)
    assert codec.take(prompts, sizes)["group"].tolist() == [0, 0, 1] == codec.canonical(batch)["group"].tolist()
    form = PromptBatches("logp", FullSequence())
    assert torch.equal(form.read(prompts, sizes), logprob)
    assert torch.equal(eval(form.source("x", sizes), {"torch": torch, "x": prompts}), logprob)  # noqa: S307 - as above


def test_packed_sequences_have_no_padding() -> None:
    """Three positions of the first row, four of the second."""
    form = PackedSequence(shift=1, fill=-0.5)
    value = torch.tensor([-0.5, -1.0, -0.5, -2.0, -3.0, -4.0, -0.5])
    assert torch.equal(form.lay_out(LOGPROB, Inputs(_batch())), value)
    assert form.read(value, SIZES).tolist() == [[-1, 0, 0], [-2, -3, -4]]
    assert _evaluated(form.source("x", SIZES), value).tolist() == [[-1, 0, 0], [-2, -3, -4]]


def test_a_rollout_written_by_hand_is_read() -> None:
    """Attention mask and versions tell the lengths; then every column is at its place."""
    data = Table(
        {
            "attention_mask": AttentionMask(),
            "versions": TokenVersions(),
            "loss_mask": Column("mask", FullSequence(), torch.int32),
            "logprobs": Column("old_logprob", FullSequence()),
        }
    )
    live = {
        "attention_mask": torch.tensor([[True, True, True, False], [True, True, True, True]]),
        "versions": torch.tensor([[-1, -1, 4, 0], [-1, 5, 5, 6]], dtype=torch.int32),
        "loss_mask": torch.tensor([[0, 0, 1, 0], [0, 1, 0, 1]], dtype=torch.int32),
        "logprobs": torch.tensor([[0.0, 0.0, -1.0, 0.0], [0.0, -2.0, -3.0, -4.0]]),
    }
    observed = observe(Step(call="m.f", arguments={"data": data}), {"data": live})
    assert observed.sizes.prompt_length is not None
    assert observed.sizes.prompt_length.tolist() == [2, 1]
    assert observed.sizes.length is not None
    assert observed.sizes.length.tolist() == [1, 3]
    assert observed.columns["version"].tolist() == [[4, 0, 0], [5, 5, 6]]
    assert observed.columns["mask"].tolist() == [[True, False, False], [True, False, True]]
    assert observed.columns["old_logprob"].tolist() == [[-1, 0, 0], [-2, -3, -4]]
    assert not observed.lengths_assumed


def test_ends_of_packed_sequences() -> None:
    """Cumulative, from 0, in int32."""
    ends = CumulativeLengths("total").put(Inputs(_batch()))
    assert ends.tolist() == [0, 3, 7]
    assert ends.dtype == torch.int32
    total = CumulativeLengths("total").sizes(ends).total_length
    assert total is not None
    assert total.tolist() == [3, 4]
