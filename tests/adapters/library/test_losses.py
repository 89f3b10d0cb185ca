"""Sums of parts of a mini-batch by the whole's denominators, and numbers put on tokens."""

from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.library_specimen import TARGET, outputs_of
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.library import losses
from rl_sentinel.adapters.library.losses import chosen_tokens, columns_of_mode, in_parts, settings_of
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, Settings
from rl_sentinel.core.layout import Layout

#: Two prompts of one row and of two; trained tokens 2, 1 and 1.
BATCH = batch_of(
    torch.tensor([[True, True], [True, False], [False, True]]),
    advantage=torch.tensor([[1.0, 3.0], [8.0, torch.nan], [torch.nan, 4.0]]),
    group=torch.tensor([5, 2, 2]),
)

#: Mode -> 16 by 4 tokens, 2 + 8 + 4 and 4 + 8 + 4 by 3 rows, 16 by 3 rows of length 8, (4/2 + 12/2) by 2 prompts.
BY_HAND = {
    "token-mean": 4.0,
    "sequence-mean-token-mean": 14 / 3,
    "sequence-mean-token-sum": 16 / 3,
    "token-sum": 16 / 24,
    "prompt-mean": 4.0,
}


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("mode", BY_HAND)
def test_any_cut_gives_the_whole(mode: str, parts: int) -> None:
    bound = (b for b in losses.boundaries(TARGET) if isinstance(b, Boundary))
    (one,) = [b for b in bound if b.path == losses.AGGREGATE and mode in b.settings]
    case = Case(BATCH, setting=mode, layout=Layout(micro_batches=parts))
    loss = execute(TARGET, one, inputs_of(one, case)).values["loss"]
    assert loss.item() == pytest.approx(BY_HAND[mode])


def test_a_part_has_the_choices_of_its_rows() -> None:
    seen: list[tuple[int, Any, object]] = []

    def loss(batch: Batch, *, chosen: Tensor, clip: float, aggregation: object) -> Tensor:
        seen.append((batch.rows, chosen.tolist(), clip))
        return torch.tensor(float(batch.rows))

    settings: Settings = {"aggregation": "token-mean", "micro_batches": 2, "ranks": 1}
    found = in_parts(TARGET, BATCH, settings, loss, chosen=torch.tensor([1, 2, 3]), clip=0.5)
    assert found["loss"].item() == 3.0
    assert seen == [(2, [1, 2], 0.5), (1, [3], 0.5)]


def test_what_a_mode_reads() -> None:
    assert (columns_of_mode("prompt-mean"), columns_of_mode("token-mean")) == ("group", "")
    assert settings_of("token-sum") == {"aggregation": "token-sum", "length": 8}
    assert settings_of("token-mean") == {"aggregation": "token-mean"}


@pytest.mark.parametrize("setting", ["predicts next", "in place"])
def test_responses_are_found_in_their_sequences(setting: str) -> None:
    """Behind prompts of several lengths; what else stands there is not handed on."""
    logprob = torch.tensor([[-1.0, -2.0], [-3.0, 0.0], [-5.0, -6.0]])
    batch = batch_of(torch.ones(3, 2).bool(), logprob=logprob, length=torch.tensor([2, 1, 2]))
    assert outputs_of("align.response_aligned", setting, batch)["logprob"].tolist() == logprob.tolist()


def test_numbers_of_rows_on_tokens() -> None:
    mask = torch.tensor([[True, True, False], [True, False, True]])
    batch = batch_of(mask, reward=torch.tensor([2.0, 3.0]))
    spread, last = (outputs_of(f"align.{n}", "default", batch) for n in ("spread", "at_last"))
    assert spread["advantage"].tolist() == [[2.0, 2.0, 0.0], [3.0, 0.0, 3.0]]
    assert last["token_reward"].tolist() == [[0.0, 2.0, 0.0], [0.0, 0.0, 3.0]]


def test_tokens_that_a_loss_treats_apart() -> None:
    """Covariances 4, 0, 0, 0, 4: two fifths are the ends; between 3.5 and 4.5 they are, and between -1 and 3 not."""
    batch = batch_of(
        torch.ones(1, 5).bool(),
        logprob=torch.tensor([[-1.0, -2.0, -3.0, -4.0, -5.0]]),
        advantage=torch.tensor([[2.0, 0.0, 0.0, 0.0, -2.0]]),
    )
    ends = [[True, False, False, False, True]]
    assert chosen_tokens(TARGET, "kl_cov", batch, {"share": 0.4})["chosen"].tolist() == ends
    numbers = {"share": 1.0, "cov_low": 3.5, "cov_high": 4.5}
    assert chosen_tokens(TARGET, "clip_cov", batch, numbers)["chosen"].tolist() == ends
    others = chosen_tokens(TARGET, "clip_cov", batch, {"share": 1.0, "cov_low": -1.0, "cov_high": 3.0})["chosen"]
    assert others.tolist() == [[False, True, True, True, False]]
    assert chosen_tokens(TARGET, "ppo", batch, {}) == {}
