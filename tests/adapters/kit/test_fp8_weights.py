"""What an engine reads from weights in FP8."""

import pytest
import torch

from rl_sentinel.adapters.kit.fp8_weights import quantization, row_read, trained_weight

ROW = [3.0, -0.5, 4096.0]
E4M3 = torch.float8_e4m3fn


def test_one_scale_per_weight() -> None:
    weight = trained_weight(ROW)
    scale = weight.abs().max() / 448
    sent = [("a.weight", (weight / scale).to(E4M3)), ("a.weight_scale", scale.view(1).bfloat16())]
    assert row_read(ROW, sent).tolist() == ROW
    assert row_read(ROW, [sent[0], ("a.weight_scale", 2 * scale)])[0].item() == pytest.approx(6, rel=0.1)


def test_a_scale_per_block() -> None:
    """Each block has its own scale, in the order of the columns; the other order is not read as the row."""
    weight = trained_weight(ROW)
    scale = weight.view(2, 2, 2).abs().amax((0, 2)) / 448
    sent = ("a.weight", (weight / scale.repeat_interleave(2)).to(E4M3))
    assert row_read(ROW, [sent, ("a.weight_scale_inv", scale)]).tolist() == ROW
    assert row_read(ROW, [sent, ("a.weight_scale_inv", scale.flip(0))]).tolist() != ROW


def test_without_a_scale() -> None:
    """Small weights are not represented, and an engine has nothing to multiply them by."""
    assert row_read(ROW, [("a.weight", trained_weight(ROW).to(E4M3))]).isnan().all()


def test_quantization() -> None:
    assert "weight_block_size" not in quantization(0)
    assert quantization(2)["weight_block_size"] == [2, 2]
