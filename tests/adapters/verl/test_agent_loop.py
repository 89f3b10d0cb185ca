"""Rows of verl's agent loop, on a specimen of its worker in words of our own."""

import pytest

from adapters.checks import Loads, bound, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.adapters.verl.agent_loop import PaddingTokenizer
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

LOOP = """
    from types import SimpleNamespace

    import torch

    class AgentLoopOutput(SimpleNamespace):
        def as_dict(self):
            scores = torch.zeros(len(self.response_ids))
            scores[-1] = self.reward_score
            return {
                "responses": torch.tensor(self.response_ids),
                "response_mask": torch.tensor(self.response_mask),
                "rollout_log_probs": torch.tensor(LOGPROBS),
                "rm_scores": scores,
            }

    class AgentLoopWorker:
        async def _agent_loop_postprocess(self, output, validate, **about):
            size, self.tokenizer.padding_side = self.rollout_config.response_length, "right"
            pad = self.tokenizer.pad({"input_ids": output.response_ids}, max_length=size, return_attention_mask=True)
            gap = [0] * (size - len(output.response_ids))
            last = len(output.response_ids) - 1
            return {
                "responses": pad["input_ids"],
                "response_mask": torch.tensor(output.response_mask + gap) * pad["attention_mask"],
                "rollout_log_probs": torch.tensor(GAP),
                "rm_scores": torch.arange(size).eq(last) * output.reward_score,
            }

        def _postprocess(self, rows):
            return SimpleNamespace(batch={name: torch.stack([row[name] for row in rows]) for name in rows[0]})
"""

EARLIER = """
    from types import SimpleNamespace

    import hydra
    import torch

    _agent_loop_registry = {}

    class AgentLoopOutput(SimpleNamespace):
        pass

    class AgentLoopWorkerBase:
        async def _run_agent_loop(self, sampling_params, trajectory, *, agent_name):
            loop = hydra.utils.instantiate(config=_agent_loop_registry[agent_name])
            output = await loop.run(sampling_params)
            size, self.tokenizer.padding_side = self.config.actor_rollout_ref.rollout.response_length, "right"
            output.padded = self.tokenizer.pad({"input_ids": output.response_ids}, max_length=size)["input_ids"]
            gap = [0.0] * (size - len(output.response_ids))
            output.mask, output.logprobs = torch.tensor(output.response_mask + gap), torch.tensor(GAP)
            return output

        def _postprocess(self, outputs):
            batch = {
                "responses": torch.stack([one.padded for one in outputs]),
                "response_mask": torch.stack([one.mask for one in outputs]),
                "rollout_log_probs": torch.stack([one.logprobs for one in outputs]),
            }
            return SimpleNamespace(batch=batch)
"""

SOUND = {"LOGPROBS": "self.response_logprobs", "GAP": "output.response_logprobs + gap"}
SHIFTED = {"LOGPROBS": "[0.0] + self.response_logprobs[:-1]", "GAP": "gap + output.response_logprobs"}


def _load(loads: Loads, parts: dict[str, str]) -> Target:
    loop = LOOP
    for name, text in parts.items():
        loop = loop.replace(name, text)
    return loads(FRAMEWORK, files() | {"verl/experimental/agent_loop/agent_loop.py": loop})


def test_reads_back(loads: Loads) -> None:
    """Columns and arguments survive the round trip."""
    target = _load(loads, SOUND)
    mine = [b for (name, _), b in bound(FRAMEWORK, target).items() if name in ("_postprocess", "as_dict")]
    assert len(mine) == 2
    check_round_trips(target, mine)


@pytest.mark.parametrize("parts", [SOUND, SHIFTED], ids=["sound", "log-probs at other tokens"])
@pytest.mark.parametrize("name", ["_postprocess", "as_dict"])
def test_log_probs_stay_at_their_tokens(loads: Loads, name: str, parts: dict[str, str]) -> None:
    target = _load(loads, parts)
    check_verdict(PLC004, bound(FRAMEWORK, target)[name, "default"], "default", target, found=parts is SHIFTED)


@pytest.mark.parametrize("parts", [SOUND, SHIFTED], ids=["sound", "log-probs at other tokens"])
def test_a_worker_that_pads_where_it_runs_the_loop(loads: Loads, parts: dict[str, str]) -> None:
    """Releases before there was a method for it; this one has no rewards."""
    source = EARLIER.replace("GAP", parts["GAP"])
    target = loads(FRAMEWORK, files() | {"verl/experimental/agent_loop/agent_loop.py": source})
    boundary = bound(FRAMEWORK, target)["_postprocess", "default"]
    assert set(boundary.outputs) == {"token", "mask", "rollout_logprob"}
    check_round_trips(target, [boundary])
    check_verdict(PLC004, boundary, "default", target, found=parts is SHIFTED)


def test_padding_tokenizer() -> None:
    """Pads at its side, and marks what was there."""
    tokenizer = PaddingTokenizer()
    tokenizer.padding_side = "left"
    padded = tokenizer.pad({"input_ids": [5, 6]}, max_length=3, return_attention_mask=True)
    assert padded["input_ids"].tolist() == [0, 5, 6]
    assert padded["attention_mask"].tolist() == [0, 1, 1]
