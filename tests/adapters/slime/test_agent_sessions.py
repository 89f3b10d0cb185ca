"""slime's agent sessions, on a specimen of its call shapes in words of our own."""

from typing import Any

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of, the_bound
from adapters.kit.round_trip import check_round_trip
from adapters.slime_trajectory_specimen import MANAGER, TYPES
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.agent_sessions import LIMITS, boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

ADAPTER = """
    from dataclasses import dataclass

    import aiohttp

    from slime.agent.trajectory import TurnRecord

    @dataclass
    class Session:
        max_context_tokens: int = 0

    class BaseAdapter:
        async def finish_session(self, name, *, base_sample, reward):
            samples = self.manager.get_trajectory(name, base_sample=base_sample, reward=reward)
            most = self.store[name].max_context_tokens or 4096
            return [sample for sample in samples if KEEPS or len(sample.tokens) <= most]

    async def call_sglang_generate(prompt_ids, session, body, *, adapter, session_id):
        room = session.max_context_tokens - len(prompt_ids) - LEFT if session.max_context_tokens else 4096
        if room <= 0:
            return TurnRecord(prompt_ids, [], "length", [])
        request = {"input_ids": prompt_ids, "sampling_params": {"max_new_tokens": room}}
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
                async with http.post(adapter.sglang_url, json=request) as reply:
                    assert reply.status == 200
                    found = (await reply.json())["meta_info"]
        except aiohttp.ClientError:
            raise
        scored = found["output_token_logprobs"]
        ids, logprobs = [token for _, token, _ in scored], [logprob for logprob, _, _ in scored]
        return TurnRecord(prompt_ids, ids, found["finish_reason"]["type"], logprobs[::ORDER])
"""


EARLY_TRAJECTORY = """
    from dataclasses import dataclass, replace

    @dataclass(frozen=True)
    class TurnRecord:
        prompt_ids: list
        output_ids: list
        finish_reason: str
        output_log_probs: list

    @dataclass
    class Segment:
        tokens: list
        masks: list
        logprobs: list

    def merge_turn_segments(segments, most):
        merged = []
        for turns in segments:
            first, tokens, masks, logprobs = len(turns[0].prompt_ids), [], [], []
            for turn in turns:
                new = turn.prompt_ids[len(tokens):]
                tokens += new + turn.output_ids
                masks += [0] * len(new) + [1] * len(turn.output_ids)
                logprobs += [0.0] * len(new) + turn.output_log_probs
            if KEEPS or not most or len(tokens) <= most:
                merged.append(Segment(tokens, masks[first:], logprobs[first:]))
        return merged

    def fan_out_sample_segments(sample, segments, reward, tokenizer):
        return [
            replace(sample, tokens=one.tokens, loss_mask=one.masks, rollout_log_probs=one.logprobs, reward=reward)
            for one in segments
        ]
"""

EARLY_COMMON = """
    from dataclasses import dataclass, field

    @dataclass
    class AdapterChain:
        turns: list = field(default_factory=list)
"""

EARLY_ADAPTER = """
    from dataclasses import dataclass, field

    from slime.agent.adapters.common import AdapterChain
    from slime.agent.trajectory import merge_turn_segments

    @dataclass
    class State:
        main: AdapterChain
        max_context_tokens: int = 0

    class OpenAIAdapter:
        session_cls = State

        async def finish_session(self, name):
            state = self.store.pop(name)
            self.closed.add(name)
            return merge_turn_segments([state.main.turns], state.max_context_tokens)
"""


def _early(loads: Loads, *, keeps: bool) -> tuple[Target, Boundary]:
    files = {
        "slime/utils/types.py": TYPES,
        "slime/agent/trajectory.py": EARLY_TRAJECTORY.replace("KEEPS", str(keeps)),
        "slime/agent/adapters/common.py": EARLY_COMMON,
        "slime/agent/adapters/openai.py": EARLY_ADAPTER,
    }
    target = loads(FRAMEWORK, files)
    boundary = the_bound(boundaries(target))
    return target, boundary


def _load(loads: Loads, *, left: int = 0, order: int = 1, keeps: bool = True) -> tuple[Target, Boundary]:
    manager = (
        MANAGER.replace("ALIGNED", "row.reply").replace("DIVISOR", "1").replace("fork_threshold_tokens", "_limit=0")
    )
    files = {
        "slime/utils/types.py": TYPES,
        "slime/agent/trajectory.py": manager.replace("self.turns = _limit=0", "self.turns = 0"),
        "slime/agent/adapters/common.py": ADAPTER.replace("LEFT", str(left))
        .replace("ORDER", str(order))
        .replace("KEEPS", str(keeps)),
    }
    target = loads(FRAMEWORK, files, {"aiohttp.py": ""})
    boundary = the_bound(boundaries(target))
    return target, boundary


@pytest.mark.parametrize("setting", LIMITS)
@pytest.mark.parametrize("early", [False, True])
def test_by_hand(loads: Loads, setting: str, early: bool) -> None:
    """Two replies, of two tokens and of one, and a tool's answer between them."""
    target, boundary = _early(loads, keeps=True) if early else _load(loads)
    check_round_trip(target, boundary)
    mask = torch.tensor([[True, True, False, True]])
    tokens, logprobs = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[-1.0, -2.0, 0.0, -3.0]])
    batch = batch_of(mask, token=tokens, rollout_logprob=logprobs, reward=torch.tensor([0.5]))
    outputs = outputs_of(target, boundary, setting, batch)
    assert outputs["token"].tolist() == tokens.tolist()
    assert outputs["mask"].tolist() == mask.tolist()
    assert outputs["rollout_logprob"].tolist() == logprobs.tolist()
    assert outputs["reward"].tolist() == [0.5]


@pytest.mark.parametrize(("setting", "found"), [("context is full", False), ("context is exceeded", True)])
def test_early_sessions_that_exceed_the_context(loads: Loads, setting: str, found: bool) -> None:
    """A session is dropped because of a prompt to which there was no room to reply."""
    target, boundary = _early(loads, keeps=False)
    check_verdict(PLC004, boundary, setting, target, found=found)


@pytest.mark.parametrize(
    ("setting", "broken", "found"),
    [
        ("default", {}, False),
        ("context is full", {}, False),
        ("default", {"order": -1}, True),
        ("default", {"left": 1}, False),
        ("context is full", {"left": 1}, True),
        ("context is exceeded", {}, False),
        ("context is full", {"keeps": False}, False),
        ("context is exceeded", {"keeps": False}, True),
    ],
)
def test_found_where_broken_alone(loads: Loads, setting: str, broken: dict[str, Any], found: bool) -> None:
    """Log-probs in another order, and a reply that is cut off before the context is full."""
    target, boundary = _load(loads, **broken)
    check_verdict(PLC004, boundary, setting, target, found=found)


def test_a_module_that_fails_is_unbound(loads: Loads) -> None:
    """The reason is reported where the module cannot be imported."""
    files = {
        "slime/agent/trajectory.py": MANAGER,
        "slime/agent/adapters/common.py": f"{ADAPTER}\n    raise ValueError\n",
    }
    (unbound,) = boundaries(loads(FRAMEWORK, files, {"aiohttp.py": ""}))
    assert isinstance(unbound, Unbound)
