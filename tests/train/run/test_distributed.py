"""Several processes: the same recipe, the same parameters, whatever the number; and checkpoints that fit any."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.policy import from_scratch
from rl_sentinel.train.run.checkpoint import newest
from rl_sentinel.train.run.distributed import Ranks
from rl_sentinel.train.run.failed_step import replayed
from rl_sentinel.train.run.journal import lines
from rl_sentinel.train.run.loop import Watch, train
from training import kept_in, recipe

#: Mini-batches of unequal rows, parts of three rows, several epochs, a KL in the loss: whatever may be cut.
MORE: dict[str, Any] = {
    "steps": 10,
    "rollout": {"prompts": 5, "responses": 3, "tokens": 4},
    "update": {"prompts": 3, "rows": 3, "epochs": 2, "rate": 5e-3},
    "kl": {"loss": 0.1},
    "checkpoint": {"every": 5},
}
CODE = (
    "import sys; from pathlib import Path; from training import recipe, kept_in; "
    "from rl_sentinel.train.run.loop import train; "
    "from rl_sentinel.train.run.distributed import Ranks; ranks = Ranks.joined(); more = eval(sys.argv[2]); "
    "train(recipe(sys.argv[1], **more), kept=kept_in(Path(sys.argv[1]) / 'cache'), ranks=ranks); ranks.close()"
)


def _together(folder: Path, size: int = 2, *, status: int = 0, **more: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join(p for p in sys.path if p)
    base = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-c", CODE, str(folder), repr(more)]
    started = [
        subprocess.Popen(command, env=os.environ | base | {"RANK": str(n), "WORLD_SIZE": str(size)})
        for n in range(size)
    ]
    assert [process.wait(timeout=120) for process in started] == [status] * size


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    found = newest(folder / "checkpoints").state
    assert found is not None
    weights: dict[str, torch.Tensor] = found["weights"]
    return weights


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """Parameters equal to 1e-5 after ten steps; and one process goes on from what two left half-way."""
    one, two = tmp_path / "one", tmp_path / "two"
    train(recipe(one, **MORE), kept=kept_in(one / "cache"))
    _together(two, **MORE)
    start = from_scratch(recipe(**MORE)).model.state_dict()
    assert _apart(_weights(one), start) > 1e-2
    assert _apart(_weights(one), _weights(two)) <= 1e-5
    for first, second in zip(lines(one / "metrics.jsonl"), lines(two / "metrics.jsonl"), strict=True):
        assert first == pytest.approx(second, rel=1e-3, abs=1e-4)
    shutil.rmtree(max((two / "checkpoints").iterdir()))
    said: list[str] = []
    train(recipe(two, **MORE), kept=kept_in(two / "cache"), watch=Watch(say=said.append))
    assert said == ["going on after step 5 of 10"]
    assert [line["step"] for line in lines(two / "metrics.jsonl")] == list(range(1, 11))
    assert _apart(_weights(one), _weights(two)) <= 1e-5


def test_two_processes_draw_the_same_tokens_and_compare_with_one_greedy_response(tmp_path: Path) -> None:
    """Each has a share of the greedy responses; tokens are chosen over the mini-batches of both."""
    drawn = {"name": "drawn_between", "low": -1.0, "high": 1.0, "share": 0.4}
    clip = {"name": "clip_cov", "clip_low": 0.2, "clip_high": 0.2, "aggregation": "token-mean", "chosen": drawn}
    more = {k: v for k, v in MORE.items() if k != "kl"} | {"steps": 4, "estimator": {"name": "remax"}, "loss": clip}
    one, two = tmp_path / "one", tmp_path / "two"
    train(recipe(one, **more), kept=kept_in(one / "cache"))
    _together(two, **more)
    assert _apart(_weights(one), from_scratch(recipe(**more)).model.state_dict()) > 1e-2
    assert _apart(_weights(one), _weights(two)) <= 1e-5


def _apart(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> float:
    assert one.keys() == two.keys()
    return max(float((one[name] - two[name]).abs().max()) for name in one)


def test_shares_are_all_of_it() -> None:
    """In order, and as many parts of rows on each rank."""
    ranks = [Ranks(n, 3) for n in range(3)]
    assert [x for r in ranks for x in r.share(range(7))] == list(range(7))
    rows = torch.arange(7)
    parts = [r.mine(rows, size=2) for r in ranks]
    assert {len(p) for p in parts} == {2}
    assert sorted(int(x) for p in parts for part in p for x in part) == list(range(7))


def test_two_processes_stop_together_at_ruined_weights(tmp_path: Path) -> None:
    """Each keeps what it had; the checkpoint before is whole, and the step happens again."""
    more = MORE | {"steps": 3, "update": MORE["update"] | {"rate": 1e30}, "checkpoint": {"every": 1}}
    _together(tmp_path, status=1, **more)  # a script of the test's own, which tells an error as Python does
    found = sorted(tmp_path.glob("stopped-*.pt"))
    assert [p.name for p in found] == ["stopped-00000001-rank-1.pt", "stopped-00000001.pt"]
    assert newest(tmp_path / "checkpoints").state is None
    for place in found:
        then, now = replayed(place)
        assert then.startswith("norm of the weights after the step is inf, expected a finite number")
        assert now


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE is 'x', expected the number of processes: start them by torchrun"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0', expected the number of processes"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, r"WORLD_SIZE is 2, and the processes do not meet \(.*MASTER_ADDR"),
        (
            {"WORLD_SIZE": "2", "RANK": "y", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"},
            r"WORLD_SIZE is 2, and the processes do not meet \(",
        ),
    ],
)
def test_environment_of_no_processes_is_one_line(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, str], words: str
) -> None:
    """What torchrun would have set."""
    for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SentinelError, match=words):
        Ranks.joined()


def test_process_that_is_left_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever gloo says of a connection that was closed."""

    def closed(*_: object) -> None:
        raise RuntimeError("[pair.cc:1] Connection closed by peer [127.0.0.1]:1\nand more")

    for name in ("barrier", "all_reduce", "all_gather_object"):
        monkeypatch.setattr(f"torch.distributed.{name}", closed)
    two = Ranks(1, 2)
    for together in (two.wait, lambda: two.added(torch.zeros(1)), lambda: two.gathered([1])):
        with pytest.raises(
            SentinelError, match=r"^another process has ended \(.*Connection closed.*\), expected all: "
        ) as told:
            together()
        assert "\n" not in str(told.value)
