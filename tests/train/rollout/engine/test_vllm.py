"""The vLLM engine, against a server with vLLM's endpoints and the tiny model."""

import json
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.policy import init_policy
from rl_sentinel.train.rollout.engine import process, vllm
from rl_sentinel.train.rollout.engine.http import Address, parse_urls
from rl_sentinel.train.rollout.server import Server
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from training import folder_cache, recipe


def _read(path: Path) -> dict[str, torch.Tensor]:
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, results = json.loads(raw[8 : 8 + size]), {}
    for name, content in header.items():
        first, last = content["data_offsets"]
        part = bytearray(raw[8 + size + first : 8 + size + last])
        kind = {"F32": torch.float32, "BF16": torch.bfloat16}[content["dtype"]]
        results[name] = torch.frombuffer(part, dtype=kind).view(content["shape"])
    return results


class Vllm(Server):
    """Like vLLM: the weight version is a label apart from the weights, and the prefix cache must be reset."""

    label, stale, raw = "default", False, False

    @property
    def routes(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "/collective_rpc": self.reload,
            "/reset_prefix_cache": self.reset,
            "/update_weight_version": self.set_label,
            "/inference/v1/generate": self.generate,
        }

    def reload(self, content: Any) -> Any:
        assert content["method"] == "reload_weights"
        (file,) = Path(content["kwargs"]["weights_path"]).iterdir()
        assert file.suffix == ".safetensors"
        self.policy.model.load_state_dict(_read(file))
        self.stale = True
        return {"results": [None]}

    def reset(self, _content: Any) -> None:
        self.stale = False

    def set_label(self, content: Any) -> Any:
        assert isinstance(content["new_version"], str)
        self.label = content["new_version"]
        return {"success": True}

    def generate(self, content: Any) -> Any:
        """Sample one response with its own seed; a stale prefix cache would use old weights."""
        assert not self.stale
        parameters = content["sampling_params"]
        source, temperature = torch.Generator().manual_seed(parameters["seed"]), parameters["temperature"]
        engine = process.Engine(self.policy, temperature or 1.0, parameters["max_tokens"])
        uniform = torch.rand(1, parameters["max_tokens"], generator=source)
        (response,) = engine.sample([tuple(content["token_ids"])], uniform, greedy=temperature == 0)
        logprobs = [{"token_id": t, "logprob": x} for t, x in zip(response.token, response.logprob, strict=True)]
        if self.raw:
            plain = self.policy(torch.tensor([content["token_ids"]]))[0, -1].log_softmax(0)
            logprobs[0]["logprob"] = float(plain[response.token[0]].detach())
        choice = {
            "index": 0,
            "finish_reason": "stop" if response.ended else "length",
            "token_ids": response.token,
            "weight_versions": [{"version": self.label, "start": 0, "end": len(response.token)}],
            "logprobs": {"content": logprobs},
        }
        return {"choices": [choice]}


@pytest.fixture
def server() -> Iterator[Vllm]:
    vllm_server = Vllm(init_policy(recipe(seed=99)))
    threading.Thread(target=vllm_server.serve_forever, daemon=True).start()
    yield vllm_server
    vllm_server.shutdown()
    vllm_server.server_close()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


@pytest.mark.parametrize("more", [{}, {"estimator": {"name": "remax"}}, {"rollout": {"temperature": 0.6}}])
def test_run_trains_on_samples_of_its_own_weights(tmp_path: Path, server: Vllm, more: dict[str, Any]) -> None:
    results = []
    for name in "ab":
        config = recipe(tmp_path / name, steps=4, **more)
        rollout = config.rollout.model_copy(update={"engine": "vllm", "url": server.url})
        train(config.model_copy(update={"rollout": rollout}), cache=folder_cache(tmp_path))
        results.append((tmp_path / name / "metrics.jsonl").read_bytes())
        metrics = read_metrics(tmp_path / name / "metrics.jsonl")
        assert all(abs(line["kl"]) < 1e-9 for line in metrics)
        assert any(line["gradient_norm"] > 0 for line in metrics)
    assert results[0] == results[1]
    assert server.label == "3"


def test_replicas_share_the_requests_and_have_the_weights(server: Vllm) -> None:
    """With the responses of one server; neighbors go to the same replica."""
    second = Vllm(init_policy(recipe(seed=98)))
    threading.Thread(target=second.serve_forever, daemon=True).start()
    requests: dict[str, list[int]] = {"first": [], "second": []}
    for name, replica in (("first", server), ("second", second)):
        generate = replica.generate

        def counted(content: Any, name: str = name, generate: Callable[[Any], Any] = generate) -> Any:
            requests[name].append(content["token_ids"][0])
            return generate(content)

        replica.generate = counted  # type: ignore[method-assign]  # to count them
    weights, uniform = init_policy(recipe()).model.state_dict(), torch.rand(8, 6)
    prompts = [(4 + n // 2, 5) for n in range(8)]
    try:
        one = vllm.Engine(parse_urls(server.url), 1.0, 6, ends=(1,))
        one.load(weights, 5)
        alone = one.sample(prompts, uniform)
        requests["first"].clear()
        both = vllm.Engine(parse_urls(f"{server.url}, {second.url}"), 1.0, 6, ends=(1,))
        both.load(weights, 6)
        shared = both.sample(prompts, uniform)
    finally:
        second.shutdown()
        second.server_close()
    assert [x.token for x in shared] == [x.token for x in alone]
    assert {x.version for x in shared} == {6}
    assert (sorted(requests["first"]), sorted(requests["second"])) == ([4, 4, 5, 5], [6, 6, 7, 7])


def test_replica_that_is_named_twice_is_one_line() -> None:
    with pytest.raises(SentinelError, match=r"^rollout.url is 'http://a,http://a/', expected different addresses"):
        parse_urls("http://a,http://a/")


def test_responses_differ_unless_greedy(server: Vllm) -> None:
    engine = vllm.Engine((Address(server.url),), 1.0, 6, ends=(1,))
    engine.load(server.policy.model.state_dict(), 5)
    uniform = torch.rand(8, 6, generator=torch.Generator().manual_seed(0))
    drawn, again = (engine.sample([(4, 5)] * 8, uniform) for _ in range(2))
    assert drawn == again
    assert len({s.token for s in drawn}) > 4
    assert {s.version for s in drawn} == {5}
    assert len({s.token for s in engine.sample([(4, 5)] * 8, uniform, greedy=True)}) == 1


@pytest.mark.on_cpu
def test_logprobs_before_the_temperature_are_rejected(server: Vllm) -> None:
    """They are another policy's; at temperature 1 both are the same."""
    weights = server.policy.model.state_dict()
    server.raw = True
    vllm.Engine((Address(server.url),), 1.0, 2, ends=(1,)).load(weights, 0)
    with pytest.raises(SentinelError, match=r"ignore the temperature, expected those at temperature 0.7"):
        vllm.Engine((Address(server.url),), 0.7, 2, ends=(1,)).load(weights, 0)
    server.raw = False
    vllm.Engine((Address(server.url),), 0.7, 2, ends=(1,)).load(weights, 0)


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
            "is malformed .'NoneType' object is not subscriptable., expected token ids",
        ),
        (
            {"logprobs": {"content": []}},
            "has log-probs of 0 tokens, expected one for each of the 1 sampled tokens",
        ),
        ({"weight_versions": [{"version": "default"}]}, "is default, expected 0"),
    ],
)
def test_other_answers_are_rejected(server: Vllm, choice: dict[str, Any], words: str) -> None:
    engine = vllm.Engine((Address(server.url),), 1.0, 2, ends=(1,))
    server.generate = lambda _content: {"choices": [SOUND]}  # type: ignore[assignment]  # the server's fault
    assert engine.sample([(2,)], torch.zeros(1, 2))[0].logprob == (-0.5,)
    server.generate = lambda _content: {"choices": [SOUND | choice]}  # type: ignore[assignment]  # as above
    with pytest.raises(SentinelError, match=words):
        engine.sample([(2,)], torch.zeros(1, 2))


def test_safetensors_keep_names_types_and_values(tmp_path: Path) -> None:
    weights = {"inner.a": torch.rand(3, 2).t(), "b": torch.rand(4).bfloat16(), "c": torch.tensor(2.0)}
    vllm.write_safetensors(weights, tmp_path / "w")
    results = _read(tmp_path / "w")
    assert list(results) == ["a", "b", "c"]
    for one, other in zip(weights.values(), results.values(), strict=True):
        assert torch.equal(one, other)
