"""AReaL's replies that lack a log-prob, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, judged_at, rewritten, the_bound
from rl_sentinel.adapters.areal import FRAMEWORK, incomplete_replies
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

CONFIGS = """
    from dataclasses import dataclass

    @dataclass
    class GenerationHyperparameters:
        n_samples: int = 1
        max_new_tokens: int = 8
"""

TYPES = """
    from dataclasses import dataclass

    @dataclass
    class ModelRequest:
        input_ids: list
        gconfig: object

    @dataclass
    class ModelResponse:
        input_tokens: list
        output_tokens: list
        output_logprobs: list
"""

CLIENT = """
    import math
    from areal.api.io_struct import ModelResponse

    async def arequest_with_retry(**request):
        raise RuntimeError("there is no server")

    class RemoteInfEngine:
        async def agenerate(self, request):
            answer = await arequest_with_retry(payload={"prompt": request.input_ids})
            tokens, logprobs = self.backend.parse_generation_response(answer)
            if COUNTS and len(tokens) != len(logprobs):
                raise ValueError(f"{len(tokens)} tokens have {len(logprobs)} log-probs")
            if READS and not all(map(math.isfinite, logprobs)):
                raise ValueError("a log-prob is not a number")
            return ModelResponse(request.input_ids, tokens, logprobs)
"""

BACKEND = """
    class VLLMBackend:
        def parse_generation_response(self, answer):
            about = answer["choices"][0]["logprobs"]
            return [int(word.partition(":")[2]) for word in about["tokens"]], about["token_logprobs"]
"""

WORKFLOW = """
    import torch
    from areal.api.io_struct import ModelRequest

    def apply_chat_template(tokenizer, messages):
        raise RuntimeError("there is no template")

    class RLVRWorkflow:
        def __init__(self, reward_fn, gconfig, tokenizer):
            self.gconfig, self.tokenizer = gconfig, tokenizer

        async def arun_episode(self, engine, data):
            prompt = apply_chat_template(self.tokenizer, data["messages"])
            made = await engine.agenerate(ModelRequest(prompt, self.gconfig))
            before, size = len(made.input_tokens), len(made.output_tokens)
            columns = {
                "input_ids": made.input_tokens + made.output_tokens,
                "attention_mask": [1] * (before + size),
                "loss_mask": [0] * before + [1] * size,
                "logprobs": [0.0] * before + made.output_logprobs,
            }
            return {name: torch.tensor([column]) for name, column in columns.items()}
"""

DATA = """
    import torch

    def concat_padded_tensors(trajectories):
        def padded(name):
            rows = [one[name][0] for one in trajectories]
            return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return {name: padded(name) for name in trajectories[0]}
"""

SOUND = {"COUNTS": "True", "READS": "True"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    client = rewritten(CLIENT, SOUND | broken)
    files = {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIGS,
        "areal/api/io_struct.py": TYPES,
        "areal/infra/remote_inf_engine.py": client,
        "areal/engine/vllm_remote.py": BACKEND,
        "areal/workflow/rlvr.py": WORKFLOW,
        "areal/utils/data.py": DATA,
    }
    target = loads(FRAMEWORK, files)
    boundary = the_bound(incomplete_replies.boundaries(target))
    return target, boundary


def test_all_settings_answer(loads: Loads) -> None:
    target, boundary = _bound(loads)
    settings = ["vLLM, log-prob missing", "vLLM, log-prob not a number"]
    assert list(boundary.settings) == settings
    assert answering(dict.fromkeys(((name, name) for name in settings), boundary), target) == []


@pytest.mark.parametrize(
    ("setting", "broken", "found"),
    [
        ("vLLM, log-prob missing", {}, False),
        ("vLLM, log-prob not a number", {}, False),
        ("vLLM, log-prob missing", {"COUNTS": "False"}, True),
        ("vLLM, log-prob not a number", {"READS": "False"}, True),
    ],
)
def test_found_where_it_is_not_refused(loads: Loads, setting: str, broken: dict[str, str], *, found: bool) -> None:
    target, boundary = _bound(loads, **broken)
    judgement = judged_at(DAT001, boundary, setting, target)
    assert judgement.tried > 0
    assert (judgement.found is not None) is found
    if judgement.found:
        reason = "a row that lacks a part must be refused, or must not train"
        assert judgement.found.expectation.sentence().endswith(f", expected 0: {reason}")
