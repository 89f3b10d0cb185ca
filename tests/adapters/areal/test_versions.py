"""Versions of AReaL's call shapes, in words of our own: of sampled tokens, and of a dumped trajectory."""

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.versions import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CLIENT = """
    from types import SimpleNamespace

    async def arequest_with_retry(**request):
        raise RuntimeError("there is no server")

    class RemoteInfEngine:
        async def agenerate(self, request):
            tokens, logprobs, versions, stop = [], [], [], None
            while stop != "stop":
                before = self.get_version()
                http = self.backend.build_generation_request(request, False, before)
                answer = await arequest_with_retry(endpoint=http.endpoint)
                part = self.backend.parse_generation_response(answer)
                stop = part.stop_reason
                tokens += part.output_tokens
                logprobs += part.output_logprobs
                versions += [before if FIXED else self.get_version()] * len(part.output_tokens)
            return SimpleNamespace(output_tokens=tokens, output_logprobs=logprobs, output_versions=versions)
"""

REQUEST = """
    from types import SimpleNamespace

    class ModelRequest:
        def __init__(self, input_ids):
            self.input_ids, self.gconfig = input_ids, SimpleNamespace(n_samples=4)
"""

EXECUTOR = """
    import json
    import os

    import aiofiles

    class WorkflowExecutor:
        async def _dump_trajectory(self, data, task_id, is_eval):
            place = self._get_dump_dir(is_eval)
            if place is None:
                return False, "no folder"
            await aiofiles.os.makedirs(place, exist_ok=True)
            async with aiofiles.open(os.path.join(place, "x.jsonl"), "a") as file:
                for row, versions in enumerate(data["versions"]):
                    own = versions[data["loss_mask"][row].bool()] if FIXED else data["versions"].flatten()
                    record = {"head_version": int(own.min()), "tail_version": int(own.max())}
                    end = int(data["attention_mask"][row].sum())
                    start = end - int(data["loss_mask"][row].sum()) - LATE
                    ids, decode = data["input_ids"][row].tolist(), self._get_tokenizer().decode
                    record |= {"sample_idx": row, "reward": data["rewards"][row].item()}
                    record |= {"prompt": decode(ids[:start]), "completion": decode(ids[start:end])}
                    await file.write(json.dumps(record) + "\\n")
            return True, ""
"""


def _bound(loads: Loads, *, fixed: bool, late: int = 0) -> tuple[Target, list[Boundary]]:
    tree = {
        "areal/__init__.py": "",
        "areal/api/io_struct.py": REQUEST,
        "areal/infra/remote_inf_engine.py": CLIENT.replace("FIXED", str(fixed)),
        "areal/infra/workflow_executor.py": EXECUTOR.replace("FIXED", str(fixed)).replace("LATE", str(late)),
    }
    target = loads(FRAMEWORK, tree)
    every = [b for b in boundaries(target) if isinstance(b, Boundary)]
    assert len(every) == 3
    return target, every


def test_segments_of_several_versions(loads: Loads) -> None:
    target, (generated, dumped, _) = _bound(loads, fixed=True)
    columns = {"version": torch.tensor([[3, 3, 5], [7, 8, 0]]), "token": torch.tensor([[1, 2, 3], [4, 5, 0]])}
    mask = torch.tensor([[True, False, True], [True, True, False]])
    batch = batch_of(mask, length=torch.tensor([3, 2]), **columns)
    outputs = outputs_of(target, generated, "default", batch)
    assert torch.equal(outputs["version"], batch.version)
    assert torch.equal(outputs["token"], batch.token)
    outputs = outputs_of(target, dumped, "default", batch)
    assert [outputs[name].tolist() for name in ("head_version", "tail_version")] == [[3.0, 7.0], [5.0, 8.0]]


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_version_of_an_answer(loads: Loads, fixed: bool, found: bool) -> None:
    """The version when an answer is read may be later than that of the weights that gave it."""
    target, (generated, *_) = _bound(loads, fixed=fixed)
    check_verdict(PLC004, generated, "default", target, found=found)


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_versions_of_a_trajectory(loads: Loads, fixed: bool, found: bool) -> None:
    """A prompt has no version, and a row has its own."""
    target, (_, dumped, _) = _bound(loads, fixed=fixed)
    check_verdict(MET001, dumped, "default", target, found=found)


@pytest.mark.parametrize(("late", "found"), [(0, False), (1, True)])
def test_completion_of_a_dumped_response(loads: Loads, late: int, found: bool) -> None:
    """A record that takes the last token of the prompt for the first one of the completion is not that response."""
    target, (*_, text) = _bound(loads, fixed=True, late=late)
    check_verdict(PLC004, text, "one turn", target, found=found)


def test_round_trip(loads: Loads) -> None:
    target, every = _bound(loads, fixed=True)
    for boundary in every:
        check_round_trip(target, boundary)
