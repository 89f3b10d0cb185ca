"""Shards are written, and read into tensors or as a whole; what fails is an error of the usual kind."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rl_sentinel.train.run.sharded_state import collect_shards, load_shards, read_whole, save_shards

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # one process saves alone here


def _trained(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.default_generator.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1, bias=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.rand(4, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def _next(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The weights after another step, which depends on the moments."""
    optimizer.step()
    return [weight.detach().clone() for weight in model.parameters()]


def test_weights_and_moments_are_read_in_place(tmp_path: Path) -> None:
    first, second = _trained(0), _trained(1)
    save_shards(collect_shards(*first), tmp_path)
    load_shards(tmp_path, collect_shards(*second))
    for one, two in zip(first[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(one, two)
        two.grad = one.grad
    assert all(torch.equal(one, two) for one, two in zip(_next(*first), _next(*second), strict=True))


def test_whole_state_is_that_of_the_model(tmp_path: Path) -> None:
    model, optimizer = _trained(0)
    save_shards(collect_shards(model, optimizer), tmp_path)
    whole, expected = read_whole(tmp_path), model.state_dict()
    assert whole["weights"].keys() == expected.keys() == {"0.weight", "0.bias", "1.weight"}
    assert all(torch.equal(whole["weights"][name], weight) for name, weight in expected.items())
    moments = whole["optimizer"]["state"]["1.weight"]
    assert moments.keys() == {"step", "exp_avg", "exp_avg_sq"}
    assert torch.equal(moments["exp_avg"], optimizer.state[model.get_parameter("1.weight")]["exp_avg"])


def test_shards_of_another_model_are_an_error(tmp_path: Path) -> None:
    save_shards({"weights/a": torch.zeros(3)}, tmp_path)
    for wanted in ({"weights/b": torch.zeros(3)}, {"weights/a": torch.zeros(4)}):
        with pytest.raises(RuntimeError, match="weights/"):
            load_shards(tmp_path, wanted)


def test_folder_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OSError, match=r"exists|directory"):
        save_shards({"weights/a": torch.zeros(3)}, tmp_path / "file")
