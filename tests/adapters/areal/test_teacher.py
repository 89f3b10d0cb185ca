"""AReaL's teacher in an inference server, on a specimen of its call shape in words of our own."""

import pytest
import torch

from adapters.checks import Loads, answering, by_setting, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK, teacher
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CLIENT = """
    import requests
    import torch

    class RemoteInfEngine:
        async def agenerate(self, request):
            raise RuntimeError("there is no server")

        def compute_logp(self, data):
            results = []
            for one in data:
                scores = torch.zeros(one["loss_mask"].shape)
                for row, mask in enumerate(one["loss_mask"]):
                    if not mask.any():
                        continue
                    ids = one["input_ids"][row][one["attention_mask"][row].bool()].tolist()
                    request = self.backend.build_score_request(ids, len(ids) - 1, False, self.get_version())
                    answer = requests.request("POST", self.choose_server(), json=request)
                    own = torch.tensor(self.backend.parse_score_response(answer.json(), len(ids) - 1))
                    places = mask.nonzero().squeeze(1)
                    scores[row, places - SHIFT] = OWN
                results.append(scores)
            return results
"""

SGLANG = """
    class SGLangBackend:
        def build_score_request(self, ids, count, with_lora, version):
            start = len(ids) - count - 1
            return {"input_ids": ids, "sampling_params": {"max_new_tokens": 1}, "logprob_start_len": start}

        def parse_score_response(self, answer, count):
            return [pair[0] for pair in answer["meta_info"]["input_token_logprobs"]][-count:]
"""

VLLM = """
    class VLLMBackend:
        def build_score_request(self, ids, count, with_lora, version):
            return {"prompt": ids, "prompt_logprobs": 1}

        def parse_score_response(self, answer, count):
            return [next(iter(one.values()))["logprob"] for one in answer["choices"][0]["prompt_logprobs"][-count:]]
"""

#: The position that predicts a token, and the scores of the trained tokens; scores start at the second token.
SOUND = {"SHIFT": "1", "OWN": "own[places - 1]"}


def _bound(loads: Loads, **words: str) -> tuple[Target, dict[str, Boundary]]:
    client = CLIENT
    for name, word in {**SOUND, **words}.items():
        client = client.replace(name, word)
    files = {
        "areal/__init__.py": "",
        "areal/infra/remote_inf_engine.py": client,
        "areal/engine/sglang_remote.py": SGLANG,
        "areal/engine/vllm_remote.py": VLLM,
    }
    target = loads(FRAMEWORK, files)
    return target, by_setting(teacher.boundaries(target))


def test_answers(loads: Loads) -> None:
    target, every = _bound(loads)
    assert set(every) == {"SGLang", "vLLM"}
    assert answering({("teacher", setting): boundary for setting, boundary in every.items()}, target) == []


@pytest.mark.parametrize("setting", ["SGLang", "vLLM"])
def test_log_probs_of_trained_tokens(loads: Loads, setting: str) -> None:
    target, every = _bound(loads)
    mask = torch.tensor([[True, False, True], [True, True, False]])
    scores = torch.tensor([[-1.0, -2.0, -4.0], [-3.0, -5.0, 0.0]])
    batch = batch_of(mask, length=torch.tensor([3, 2]), ref_logprob=scores, prompt_length=torch.tensor([2, 3]))
    assert torch.equal(outputs_of(target, every[setting], setting, batch)["ref_logprob"], scores)
    check_verdict(PLC004, every[setting], setting, target, found=False)
    check_round_trip(target, every[setting])


@pytest.mark.parametrize(
    "words",
    [{"SHIFT": "0"}, {"OWN": "own[-len(places) :]"}],
    ids=["at the token itself", "scores of the last tokens"],
)
@pytest.mark.parametrize("setting", ["SGLang", "vLLM"])
def test_scores_of_other_tokens(loads: Loads, words: dict[str, str], setting: str) -> None:
    target, every = _bound(loads, **words)
    check_verdict(PLC004, every[setting], setting, target, found=True)
