"""Several processes train the same parameters as one, and checkpoints fit any number."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.policy import init_policy
from rl_sentinel.train.rollout.server import Server
from rl_sentinel.train.run.checkpoint import load_newest
from rl_sentinel.train.run.distributed import Ranks
from rl_sentinel.train.run.failed_step import replay_failed_step
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.run_context import Callbacks
from training import folder_cache, recipe

#: Mini-batches of unequal size, parts of three rows, two epochs, a KL in the loss.
MORE: dict[str, Any] = {
    "steps": 10,
    "rollout": {"prompts": 5, "responses": 3, "tokens": 4},
    "update": {"prompts": 3, "rows": 3, "epochs": 2, "rate": 5e-3},
    "kl": {"loss": 0.1},
    "checkpoint": {"every": 5},
}
CODE = (
    "import sys; from pathlib import Path; from training import recipe, folder_cache; "
    "from rl_sentinel.train.run.loop import train; "
    "from rl_sentinel.train.run.distributed import Ranks; ranks = Ranks.join(); more = eval(sys.argv[2]); "
    "train(recipe(sys.argv[1], **more), cache=folder_cache(Path(sys.argv[1]) / 'cache'), ranks=ranks); "
    "ranks.close(); ranks.end_process()"
)


def _train_together(folder: Path, size: int = 2, *, status: int = 0, **more: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join(p for p in sys.path if p)
    base = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-c", CODE, str(folder), repr(more)]
    processes = [
        subprocess.Popen(command, env=os.environ | base | {"RANK": str(n), "WORLD_SIZE": str(size)})
        for n in range(size)
    ]
    assert [process.wait(timeout=120) for process in processes] == [status] * size


@contextmanager
def _server(published: Callable[[int], None] = lambda _: None) -> Iterator[Server]:
    """A rollout server of the small model in a thread, which tells of each version that it gets."""

    class Counting(Server):
        def load_weights(self, request: Mapping[str, Any]) -> dict[str, Any]:
            published(int(request["version"]))
            return super().load_weights(request)

    server = Counting(init_policy(recipe(seed=99)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    state = load_newest(folder / "checkpoints").state
    assert state is not None
    weights: dict[str, torch.Tensor] = state["weights"]
    return weights


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """Parameters equal to 1e-5 after ten steps; one process resumes a run of two."""
    one, two = tmp_path / "one", tmp_path / "two"
    train(recipe(one, **MORE), cache=folder_cache(one / "cache"))
    _train_together(two, **MORE)
    start = init_policy(recipe(**MORE)).model.state_dict()
    assert _distance(_weights(one), start) > 1e-2
    assert _distance(_weights(one), _weights(two)) <= 1e-5
    for first, second in zip(read_metrics(one / "metrics.jsonl"), read_metrics(two / "metrics.jsonl"), strict=True):
        assert first == pytest.approx(second, rel=1e-3, abs=1e-4)
    shutil.rmtree(max((two / "checkpoints").iterdir()))
    messages: list[str] = []
    train(recipe(two, **MORE), cache=folder_cache(two / "cache"), callbacks=Callbacks(message=messages.append))
    assert messages == ["resuming after step 5 of 10"]
    assert [line["step"] for line in read_metrics(two / "metrics.jsonl")] == list(range(1, 11))
    assert _distance(_weights(one), _weights(two)) <= 1e-5


@pytest.mark.slow
def test_checkpoint_of_four_processes_resumes_on_two_and_on_one(tmp_path: Path) -> None:
    """Each process writes its share; parameters equal to 1e-5 after ten steps, whoever trained the last five."""
    one, four = tmp_path / "one", tmp_path / "four"
    train(recipe(one, **MORE), cache=folder_cache(one / "cache"))
    _train_together(four, 4, **MORE)
    assert _distance(_weights(one), _weights(four)) <= 1e-5
    places = sorted((four / "checkpoints").iterdir())
    assert [len(list((place / "shards").glob("*.distcp"))) for place in places] == [4, 4]
    damaged = next((places[1] / "shards").glob("__2*"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    for size in (2, 1):
        shutil.copytree(four, tmp_path / str(size))
        _train_together(tmp_path / str(size), size, **MORE)
        lines = read_metrics(tmp_path / str(size) / "metrics.jsonl")
        assert [line["step"] for line in lines] == list(range(1, 11))
        assert _distance(_weights(one), _weights(tmp_path / str(size))) <= 1e-5
        shutil.rmtree(tmp_path / str(size))


@pytest.mark.slow
def test_checkpoints_in_the_background_are_those_of_the_loop(tmp_path: Path) -> None:
    """Shards are written beside training; another number of processes resumes from them."""
    usual, background = tmp_path / "usual", tmp_path / "background"
    more = MORE | {"checkpoint": {"every": 2, "background": True}}
    _train_together(usual, **MORE)
    _train_together(background, **more | {"steps": 6})
    _train_together(background, **more)
    assert (background / "metrics.jsonl").read_bytes() == (usual / "metrics.jsonl").read_bytes()
    assert _distance(_weights(usual), _weights(background)) == 0
    shutil.rmtree(max((background / "checkpoints").iterdir()))
    train(recipe(background, **more), cache=folder_cache(background / "cache"))
    assert _distance(_weights(usual), _weights(background)) <= 1e-5


@pytest.mark.slow
def test_interrupted_processes_resume_to_the_same_bytes(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    _train_together(whole, **MORE)
    _train_together(cut, **MORE | {"steps": 5})
    _train_together(cut, **MORE)
    assert (cut / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert _distance(_weights(whole), _weights(cut)) == 0


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is an extra")
def test_two_processes_train_low_rank_matrices_as_one(tmp_path: Path) -> None:
    """Also through a server, which gets merged weights.

    Adam divides the first gradients, which are almost 0, by their size, so the rate is lower than in the other tests.
    """
    more = MORE | {"policy": {"lora": {"rank": 4, "whole": ["lm_head"]}}, "update": MORE["update"] | {"rate": 1e-3}}
    train(recipe(tmp_path / "one", **more), cache=folder_cache(tmp_path / "cache"))
    moved = [weight.abs().max() for name, weight in _weights(tmp_path / "one").items() if "lora_B" in name]
    assert max(moved) > 1e-2  # they start at 0
    with _server() as server:
        remote = more["rollout"] | {"engine": "http", "url": server.url}
        for place, its in (("two", more), ("served", more | {"rollout": remote})):
            _train_together(tmp_path / place, **its)
            assert _distance(_weights(tmp_path / "one"), _weights(tmp_path / place)) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0, 1])
def test_one_process_publishes_to_a_server_once_a_step(tmp_path: Path, staleness: int) -> None:
    bounds = [{"name": "truncated", "high": 2.0}]
    more: dict[str, Any] = MORE | {"steps": 5, "correction": {"weight": "token_weights", "bounds": bounds}}
    more["rollout"] = MORE["rollout"] | {"staleness": staleness}
    train(recipe(tmp_path / "one", **more), cache=folder_cache(tmp_path / "cache"))
    versions: list[int] = []
    with _server(versions.append) as server:
        more["rollout"] |= {"engine": "http", "url": server.url}
        _train_together(tmp_path / "two", **more)
    assert versions == [max(0, step - staleness) for step in range(5)]
    assert _distance(_weights(tmp_path / "one"), _weights(tmp_path / "two")) <= 1e-5


@pytest.mark.slow
def test_two_processes_choose_the_same_tokens_and_baselines(tmp_path: Path) -> None:
    drawn = {"name": "drawn_between", "low": -1.0, "high": 1.0, "share": 0.4}
    clip = {"name": "clip_cov", "clip_low": 0.2, "clip_high": 0.2, "aggregation": "token-mean", "chosen": drawn}
    more = {k: v for k, v in MORE.items() if k != "kl"} | {"steps": 4, "estimator": {"name": "remax"}, "loss": clip}
    one, two = tmp_path / "one", tmp_path / "two"
    train(recipe(one, **more), cache=folder_cache(one / "cache"))
    _train_together(two, **more)
    assert _distance(_weights(one), init_policy(recipe(**more)).model.state_dict()) > 1e-2
    assert _distance(_weights(one), _weights(two)) <= 1e-5


def _distance(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> float:
    assert one.keys() == two.keys()
    return max(float((one[name] - two[name]).abs().max()) for name in one)


def test_slices_and_parts_cover_all_rows() -> None:
    ranks = [Ranks(n, 3) for n in range(3)]
    assert [x for r in ranks for x in r.own_slice(range(7))] == list(range(7))
    rows = torch.arange(7)
    parts = [r.own_parts(rows, size=2, lengths=torch.ones(7)) for r in ranks]
    assert {len(p) for p in parts} == {2}
    assert sorted(int(x) for p in parts for part in p for x in part) == list(range(7))


def test_parts_keep_to_a_budget_of_tokens() -> None:
    """All ranks have the same number of parts; a row above the budget is a part of its own."""
    lengths = torch.tensor([2, 2, 3, 3, 4, 9, 12])
    rows = lengths.argsort()
    parts = Ranks(0, 1).own_parts(rows, size=3, lengths=lengths, budget=9)
    assert [lengths[part].tolist() for part in parts] == [[2, 2, 3], [3, 4], [9], [12]]
    assert Ranks(0, 1).own_parts(rows[:0], size=3, lengths=lengths, budget=9) == []
    of_ranks = [Ranks(n, 2).own_parts(rows, size=3, lengths=lengths, budget=9) for n in range(2)]
    assert [[lengths[part].tolist() for part in parts] for parts in of_ranks] == [
        [[2, 3], [4], [12]],
        [[2, 3], [9], []],
    ]


@pytest.mark.slow
def test_two_processes_stop_together_at_non_finite_weights(tmp_path: Path) -> None:
    more = MORE | {"steps": 3, "update": MORE["update"] | {"rate": 1e30}, "checkpoint": {"every": 1}}
    _train_together(tmp_path, status=1, **more)  # the script exits with Python's status of an error
    dumps = sorted(tmp_path.glob("stopped-*.pt"))
    assert [p.name for p in dumps] == ["stopped-00000001-rank-1.pt", "stopped-00000001.pt"]
    assert load_newest(tmp_path / "checkpoints").state is None
    for place in dumps:
        then, now = replay_failed_step(place)
        assert then.startswith("norm of the weights after the optimizer step is inf, expected a finite number")
        assert now


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE is 'x', expected the number of processes: start them with torchrun"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0', expected the number of processes"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, r"WORLD_SIZE is 2, but the processes cannot connect \(.*MASTER_ADDR"),
        (
            {"WORLD_SIZE": "2", "RANK": "y", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"},
            r"WORLD_SIZE is 2, but the processes cannot connect \(",
        ),
    ],
)
def test_invalid_environment_is_one_line(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], words: str
) -> None:
    for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SentinelError, match=words):
        Ranks.join()


def test_failure_of_another_process_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise RuntimeError("[pair.cc:1] Connection closed by peer [127.0.0.1]:1\nand more")

    for name in ("barrier", "all_reduce", "all_gather_object"):
        monkeypatch.setattr(f"torch.distributed.{name}", closed)
    two = Ranks(1, 2)
    for collective in (two.barrier, lambda: two.all_reduce(torch.zeros(1)), lambda: two.gather([1])):
        with pytest.raises(
            SentinelError,
            match=r"^an exchange with the other processes failed \(.*Connection closed.*\): see their mes",
        ) as error:
            collective()
        assert "\n" not in str(error.value)
