"""verl's inference servers between the worker's options and the engine's reply, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.tensordict_specimen import TENSORDICT
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, rollout_servers
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONFIG = """
    from dataclasses import dataclass, field

    @dataclass
    class SamplingConfig:
        temperature: float = 0.0
        top_p: float = 1.0
        top_k: int = -1

    @dataclass
    class RolloutConfig:
        name: str
        temperature: float = 1.0
        top_p: float = 1.0
        top_k: int = -1
        max_model_len: int = 0
        prompt_length: int = 0
        response_length: int = 4
        val_kwargs: SamplingConfig = field(default_factory=SamplingConfig)
"""

WORKER = """
    class AgentLoopWorker:
        async def generate_sequences(self, batch):
            chosen = self.rollout_config.val_kwargs if batch.meta_info["validate"] else self.rollout_config
            options = {name: getattr(chosen, name) for name in ("temperature", "top_p", "top_k")}
            outputs = [await self._run_agent_loop(options, number) for number in range(len(batch))]
            return self._postprocess(outputs)
"""

QUEUED = """
    import asyncio
    import transfer_queue as tq
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    class AgentLoopWorkerTQ(AgentLoopWorker):
        async def generate_sequences(self, batch):
            rollout = self.config.actor_rollout_ref.rollout
            chosen = rollout.val_kwargs if batch["validate"] else rollout
            options = {name: getattr(chosen, name) for name in ("temperature", "top_p", "top_k")}
            for uid in batch["uid"]:
                self.background_tasks.add(asyncio.create_task(self.one(uid, options)))

        async def one(self, uid, options):
            await tq.async_kv_put(key=uid)
            await self._run_agent_loop(options)
"""

OUTPUT = """
    from dataclasses import dataclass, field

    @dataclass
    class TokenOutput:
        token_ids: list
        log_probs: list
        extra_fields: dict = field(default_factory=dict)
"""

VLLM = """
    from importlib.metadata import version
    from vllm import SamplingParams, TokensPrompt
    from verl.workers.rollout.replica import TokenOutput

    version("vllm")

    class vLLMHttpServer:
        async def generate(self, prompt_ids, sampling_params, request_id):
            room = self.config.response_length
            most = sampling_params.pop("max_tokens", room)
            wanted = sampling_params.pop("logprobs", False)
            options = SamplingParams(**{"max_tokens": most, "logprobs": 0 if wanted else None, **sampling_params})
            prompt = TokensPrompt(prompt_token_ids=prompt_ids)
            async for reply in self.engine.generate(prompt=prompt, sampling_params=options, request_id=request_id):
                final = reply
            own, about = final.outputs[0], {}
            if options.prompt_logprobs is not None:
                known = [next(iter(one.values())).logprob for one in final.prompt_logprobs[1:]]
                about = {"prompt_ids": [[1]] * len(prompt_ids), "prompt_logprobs": [[x] for x in SHIFTED]}
            logprobs = [one[token].logprob for one, token in zip(own.logprobs, own.token_ids, strict=True)]
            return TokenOutput(TOKENS, LOGPROBS, about)
"""

SGLANG = """
    from sglang import GenerateReqInput
    from verl.workers.rollout.replica import TokenOutput

    class SGLangHttpServer:
        async def generate(self, prompt_ids, sampling_params, request_id):
            most = sampling_params.pop("max_tokens", self.config.response_length)
            options = {**sampling_params, "max_new_tokens": most}
            asked = options.pop("prompt_logprobs", None)
            request = GenerateReqInput(input_ids=prompt_ids, sampling_params=options)
            if asked is not None:
                request.logprob_start_len = 0
            reply = await self.tokenizer_manager.generate_request(request, None).__anext__()
            about = {}
            if asked is not None:
                known = [x for x, _, _ in reply["meta_info"]["input_token_logprobs"][1:]]
                about = {"prompt_ids": [[1]] * len(prompt_ids), "prompt_logprobs": [[x] for x in [*known, 0.0]]}
            pairs = reply["meta_info"]["output_token_logprobs"]
            return TokenOutput([token for _, token, _ in pairs], [x for x, _, _ in pairs], about)
"""

TRTLLM = """
    from verl.workers.rollout.replica import TokenOutput

    class TRTLLMHttpServer:
        async def generate(self, prompt_ids, sampling_params, request_id):
            from tensorrt_llm.llmapi import SamplingParams

            options = SamplingParams(**{"max_tokens": self.config.response_length, **sampling_params})
            (own,) = (await self.llm.generate_async(inputs=prompt_ids, sampling_params=options)).outputs
            return TokenOutput(own.token_ids, [next(iter(one.values())).logprob for one in own.logprobs])
"""

TEACHER = """
    import torch

    class AsyncTeacherLLMServerManager:
        async def compute_teacher_logprobs_single(self, sequence_ids):
            (client,) = self.teacher_client.values()
            params = {"max_tokens": 1, "prompt_logprobs": 0}
            output = await client.generate(request_id="r", prompt_ids=sequence_ids, sampling_params=params)
            return None, torch.tensor(output.extra_fields["prompt_logprobs"])
"""

SOUND = {"SHIFTED": "[*known, 0.0]", "TOKENS": "own.token_ids", "LOGPROBS": "logprobs"}

_FOLDER = "verl/workers/rollout"


def _load(loads: Loads, worker: str = WORKER, sglang: str = SGLANG, **broken: str) -> Target:
    server = rewritten(VLLM, SOUND | broken)
    return loads(
        FRAMEWORK,
        {
            "verl/workers/config/__init__.py": CONFIG,
            "verl/experimental/agent_loop/agent_loop.py": worker,
            "verl/experimental/teacher_loop/teacher_manager.py": TEACHER,
            "verl/trainer/ppo/v1/agent_loop_tq.py": QUEUED,
            f"{_FOLDER}/replica.py": OUTPUT,
            f"{_FOLDER}/vllm_rollout/vllm_async_server.py": server,
            f"{_FOLDER}/sglang_rollout/async_sglang_server.py": sglang,
            f"{_FOLDER}/trtllm_rollout/trtllm_async_server.py": TRTLLM,
        },
        {"tensordict/__init__.py": TENSORDICT},
    )


def _bound(loads: Loads, worker: str = WORKER, **broken: str) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    target = _load(loads, worker, **broken)
    found = list(rollout_servers.boundaries(target))
    assert all(isinstance(one, Boundary) for one in found), found
    named = {}
    for one in found:
        assert isinstance(one, Boundary)
        server = next(name for name in rollout_servers.SERVERS if name in one.path)
        queued = "queued " if "TQ" in one.path else ""
        named[server, f"{queued}{next(iter(one.settings))}"] = one
    return target, named


def test_server_without_log_probs_of_prompts(loads: Loads) -> None:
    """Cannot be a teacher: the report says so."""
    target = _load(loads, sglang=SGLANG.replace("prompt_logprobs", "unknown"))
    (unbound,) = (one for one in rollout_servers.boundaries(target) if isinstance(one, Unbound))
    assert unbound.path == f"{rollout_servers.ASK} -> {rollout_servers.SERVERS['sglang'].owner}.generate"
    assert (unbound.absent, "returns no log-probs of prompts" in unbound.reason) == (True, True)


def test_reads_back(loads: Loads) -> None:
    target, named = _bound(loads)
    check_round_trips(target, list(named.values()))


def test_every_server_is_bound(loads: Loads) -> None:
    _, named = _bound(loads)
    options = {"options, training", "options, validation", "queued options, training", "queued options, validation"}
    everywhere = {(server, setting) for server in rollout_servers.SERVERS for setting in options | {"rows"}}
    assert set(named) == everywhere | {(server, "log-probs of the tokens") for server in ("vllm", "sglang")}


@pytest.mark.parametrize("server", list(rollout_servers.SERVERS))
@pytest.mark.parametrize("setting", ["options, training", "options, validation"])
@pytest.mark.parametrize("queued", ["", "queued "])
def test_sound_options(loads: Loads, server: str, setting: str, queued: str) -> None:
    target, named = _bound(loads)
    check_verdict(CFG004, named[server, queued + setting], setting, target, found=False)


@pytest.mark.parametrize(
    ("setting", "old", "new"),
    [
        ("options, training", '"temperature", "top_p", "top_k"', '"temperature", "top_p"'),
        ("options, training", "getattr(chosen, name)", "chosen.top_p"),
        ("options, validation", 'batch.meta_info["validate"]', "False"),
    ],
)
def test_lost_and_exchanged_options(loads: Loads, setting: str, old: str, new: str) -> None:
    assert old in WORKER
    target, named = _bound(loads, WORKER.replace(old, new))
    for server in rollout_servers.SERVERS:
        check_verdict(CFG004, named[server, setting], setting, target, found=True)


@pytest.mark.parametrize(
    ("setting", "broken"),
    [
        ("rows", {}),
        ("rows", {"TOKENS": "own.token_ids[:-1]", "LOGPROBS": "logprobs[:-1]"}),
        ("rows", {"LOGPROBS": "logprobs[::-1]"}),
        ("log-probs of the tokens", {}),
        (
            "log-probs of the tokens",
            {"SHIFTED": "[0.0, *known]"},
        ),  # of the token itself, not the next
    ],
)
def test_replies(loads: Loads, setting: str, broken: dict[str, str]) -> None:
    target, named = _bound(loads, **broken)
    check_verdict(PLC004, named["vllm", setting], setting, target, found=bool(broken))


@pytest.mark.parametrize(
    ("server", "setting"), [("sglang", "rows"), ("sglang", "log-probs of the tokens"), ("trtllm", "rows")]
)
def test_sound_replies(loads: Loads, server: str, setting: str) -> None:
    target, named = _bound(loads)
    check_verdict(PLC004, named[server, setting], setting, target, found=False)
