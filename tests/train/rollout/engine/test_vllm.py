"""A server of vLLM: its addresses and words, answered by the tiny model; the real one was tried by hand."""

import json
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.policy import from_scratch
from rl_sentinel.train.rollout.engine import process, vllm
from rl_sentinel.train.rollout.engine.http import Address
from rl_sentinel.train.rollout.server import Server
from rl_sentinel.train.run.journal import lines
from rl_sentinel.train.run.loop import train
from training import kept_in, recipe


def _read(path: Path) -> dict[str, torch.Tensor]:
    """A file of safetensors, by what its format says."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, found = json.loads(raw[8 : 8 + size]), {}
    for name, told in header.items():
        first, last = told["data_offsets"]
        part = bytearray(raw[8 + size + first : 8 + size + last])
        kind = {"F32": torch.float32, "BF16": torch.bfloat16}[told["dtype"]]
        found[name] = torch.frombuffer(part, dtype=kind).view(told["shape"])
    return found


class Vllm(Server):
    """As vLLM: a label for the weights apart from the weights, prompts that are known until they are forgotten."""

    label, stale, raw = "default", False, False

    @property
    def answers(self) -> dict[str, Callable[[Any], Any]]:
        """Four of its addresses."""
        return {
            "/collective_rpc": self.reload,
            "/reset_prefix_cache": self.forget,
            "/update_weight_version": self.labelled,
            "/inference/v1/generate": self.generate,
        }

    def reload(self, told: Any) -> Any:
        """From the one file of a folder."""
        assert told["method"] == "reload_weights"
        (file,) = Path(told["kwargs"]["weights_path"]).iterdir()
        assert file.suffix == ".safetensors"
        self.policy.model.load_state_dict(_read(file))
        self.stale = True
        return {"results": [None]}

    def forget(self, _told: Any) -> None:
        """Answered by nothing at all."""
        self.stale = False

    def labelled(self, told: Any) -> Any:
        """With a word."""
        assert isinstance(told["new_version"], str)
        self.label = told["new_version"]
        return {"success": True}

    def generate(self, told: Any) -> Any:
        """One response, by its own seed; to prompts it would still know it would answer by old weights."""
        assert not self.stale
        how = told["sampling_params"]
        source, heat = torch.Generator().manual_seed(how["seed"]), how["temperature"]
        engine = process.Engine(self.policy, heat or 1.0, how["max_tokens"])
        chance = torch.rand(1, how["max_tokens"], generator=source)
        (said,) = engine.sample([tuple(told["token_ids"])], chance, greedy=heat == 0)
        known = [{"token_id": t, "logprob": x} for t, x in zip(said.token, said.logprob, strict=True)]
        if self.raw:
            plain = self.policy(torch.tensor([told["token_ids"]]))[0, -1].log_softmax(0)
            known[0]["logprob"] = float(plain[said.token[0]])
        choice = {
            "index": 0,
            "finish_reason": "stop" if said.ended else "length",
            "token_ids": said.token,
            "weight_versions": [{"version": self.label, "start": 0, "end": len(said.token)}],
            "logprobs": {"content": known},
        }
        return {"choices": [choice]}


@pytest.fixture
def server() -> Iterator[Vllm]:
    """One with other weights than the run's."""
    found = Vllm(from_scratch(recipe(seed=99)))
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once."""
    monkeypatch.setattr("time.sleep", lambda _: None)


@pytest.mark.parametrize("more", [{}, {"estimator": {"name": "remax"}}, {"rollout": {"temperature": 0.6}}])
def test_run_learns_from_what_its_own_weights_said(tmp_path: Path, server: Vllm, more: dict[str, Any]) -> None:
    """Log-probs are the policy's own, to rounding; responses to a prompt differ, and equal runs are equal."""
    found = []
    for name in "ab":
        how = recipe(tmp_path / name, steps=4, **more)
        asked = how.rollout.model_copy(update={"engine": "vllm", "url": server.url})
        train(how.model_copy(update={"rollout": asked}), kept=kept_in(tmp_path))
        found.append((tmp_path / name / "metrics.jsonl").read_bytes())
        told = lines(tmp_path / name / "metrics.jsonl")
        assert all(abs(line["kl"]) < 1e-9 for line in told)
        assert any(line["gradient_norm"] > 0 for line in told)
    assert found[0] == found[1]
    assert server.label == "3"


def test_responses_are_drawn_apart_and_greedy_ones_alike(server: Vllm) -> None:
    """Each request has a seed of its own, from its numbers."""
    engine = vllm.Engine(Address(server.url), 1.0, 6, end=1)
    engine.load(server.policy.model.state_dict(), 5)
    chance = torch.rand(8, 6, generator=torch.Generator().manual_seed(0))
    drawn, again = (engine.sample([(4, 5)] * 8, chance) for _ in range(2))
    assert drawn == again
    assert len({s.token for s in drawn}) > 4
    assert {s.version for s in drawn} == {5}
    assert len({s.token for s in engine.sample([(4, 5)] * 8, chance, greedy=True)}) == 1


def test_logprobs_before_the_temperature_are_refused(server: Vllm) -> None:
    """They are those of another policy, and nobody would see; at temperature 1 both are the same."""
    weights = server.policy.model.state_dict()
    server.raw = True
    vllm.Engine(Address(server.url), 1.0, 2, end=1).load(weights, 0)
    with pytest.raises(SentinelError, match=r"tells log-probs before the temperature, 0.7, expected those after it"):
        vllm.Engine(Address(server.url), 0.7, 2, end=1).load(weights, 0)
    server.raw = False
    vllm.Engine(Address(server.url), 0.7, 2, end=1).load(weights, 0)


SOUND = {
    "token_ids": [1],
    "finish_reason": "stop",
    "weight_versions": [{"version": "0"}],
    "logprobs": {"content": [{"token_id": 1, "logprob": -0.5}]},
}


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (
            {"logprobs": None},
            "answered something else .'NoneType' object is not subscriptable., expected token ids",
        ),
        ({"logprobs": {"content": []}}, "gave no log-prob for each of its tokens"),
        ({"weight_versions": [{"version": "default"}]}, "sampled with weights of version default, expected 0"),
    ],
)
def test_other_answers_are_refused(server: Vllm, choice: dict[str, Any], words: str) -> None:
    """Rather than trained on; a sound one is taken."""
    engine = vllm.Engine(Address(server.url), 1.0, 2, end=1)
    server.generate = lambda _told: {"choices": [SOUND]}  # type: ignore[assignment]  # that is the point
    assert engine.sample([(2,)], torch.zeros(1, 2))[0].logprob == (-0.5,)
    server.generate = lambda _told: {"choices": [SOUND | choice]}  # type: ignore[assignment]  # as above
    with pytest.raises(SentinelError, match=words):
        engine.sample([(2,)], torch.zeros(1, 2))


def test_weights_are_written_as_they_are(tmp_path: Path) -> None:
    """In their own types and orders, a transformers policy's by the names of its model."""
    weights = {"inner.a": torch.rand(3, 2).t(), "b": torch.rand(4).bfloat16(), "c": torch.tensor(2.0)}
    vllm.written(weights, tmp_path / "w")
    found = _read(tmp_path / "w")
    assert list(found) == ["a", "b", "c"]
    for one, other in zip(weights.values(), found.values(), strict=True):
        assert torch.equal(one, other)
