"""verl's client that resumes interrupted responses, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_round_trips
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, server_clients
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CLIENT = """
    import asyncio
    import numpy as np
    from dataclasses import dataclass, field

    @dataclass
    class TokenOutput:
        token_ids: list
        log_probs: list
        stop_reason: str = ""
        num_preempted: int = 0
        routed_experts: object = None
        extra_fields: dict = field(default_factory=dict)

    class LLMServerClient:
        async def generate(self, request_id, *, prompt_ids, sampling_params):
            name, server = await self._acquire_server(request_id, prompt_ids=prompt_ids)
            try:
                return await server.generate.remote(prompt_ids=prompt_ids, sampling_params=sampling_params)
            finally:
                self._release_server(name, request_id=request_id)

    class FullyAsyncLLMServerClient(LLMServerClient):
        async def generate(self, request_id, *, prompt_ids, sampling_params):
            room, whole = LIMIT, TokenOutput([], [])
            while True:
                params = {**sampling_params, **({"max_tokens": room - USED} if room else {})}
                part = await super().generate(request_id, prompt_ids=RESUMED, sampling_params=params)
                whole.token_ids += part.token_ids
                whole.log_probs += part.log_probs
                if whole.routed_experts is None:
                    whole.routed_experts = part.routed_experts
                else:
                    whole.routed_experts = np.concatenate([EXPERTS])
                if part.stop_reason != "aborted" or room and len(whole.token_ids) >= room:
                    return whole
                await asyncio.sleep(60)
"""

SOUND = {
    "LIMIT": "self.config.actor_rollout_ref.rollout.response_length",
    "USED": "len(whole.token_ids)",
    "RESUMED": "prompt_ids + whole.token_ids",
    "EXPERTS": "whole.routed_experts, part.routed_experts[len(whole.routed_experts) :]",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    client = rewritten(CLIENT, SOUND | broken)
    target = loads(FRAMEWORK, files() | {"verl/workers/rollout/llm_server.py": client})
    return target, the_only(server_clients.boundaries(target))


def test_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_round_trips(target, [boundary])


@pytest.mark.parametrize(
    ("setting", "broken"),
    [
        ("the server's limit", {}),
        ("the server's limit", {"LIMIT": 'sampling_params.get("max_tokens")'}),  # each attempt has the whole limit
        ("a limit in the request", {}),
        ("a limit in the request", {"USED": "0"}),
        ("a limit in the request", {"RESUMED": "prompt_ids"}),  # what was sampled is sampled anew
        (  # the experts of the token before
            "a limit in the request",
            {"EXPERTS": "whole.routed_experts, part.routed_experts[len(whole.routed_experts) - 1 : -1]"},
        ),
        ("a limit in the request", {"EXPERTS": "part.routed_experts"}),  # old tokens get the experts of new weights
    ],
)
def test_faults(loads: Loads, setting: str, broken: dict[str, str]) -> None:
    target, boundary = _bound(loads, **broken)
    check_verdict(PLC004, boundary, setting, target, found=bool(broken))


@pytest.mark.parametrize(
    ("experts", "found"),
    [
        (SOUND["EXPERTS"], False),
        ("part.routed_experts", False),  # at the right positions, although of new weights
        ("whole.routed_experts, part.routed_experts", True),  # those of the first tokens twice
        ("whole.routed_experts", True),  # none for the tokens after the interruption
    ],
)
def test_positions_of_experts(loads: Loads, experts: str, found: bool) -> None:
    target, boundary = _bound(loads, EXPERTS=experts)
    check_verdict(TOK001, boundary, "a limit in the request", target, found=found)
