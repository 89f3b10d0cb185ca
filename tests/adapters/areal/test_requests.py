"""AReaL's requests and data loaders, on a specimen of their call shapes in words of our own."""

from collections.abc import Callable

import pytest

from adapters.checks import Loads, answering, check_verdict, judged_at
from rl_sentinel.adapters.areal import FRAMEWORK, dataloader, requests
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONFIGS = """
    from dataclasses import dataclass

    @dataclass
    class GenerationHyperparameters:
        n_samples: int = 1
        max_new_tokens: int = 8
        temperature: float = 1.0

    @dataclass
    class TrainDatasetConfig:
        path: str
        type: str
        batch_size: int
        num_workers: int
        shuffle: bool
        drop_last: bool = True

    @dataclass
    class ValidDatasetConfig(TrainDatasetConfig):
        drop_last: bool = False
"""

REQUEST = """
    from dataclasses import dataclass, field

    @dataclass
    class ModelRequest:
        input_ids: list
        gconfig: object
        metadata: dict = field(default_factory=dict)
"""

CLIENT = """
    import numpy as np
    from types import SimpleNamespace

    async def arequest_with_retry(**request):
        raise RuntimeError("there is no server")

    class RemoteInfEngine:
        async def agenerate(self, request):
            tokens, logprobs, experts, stop = [], [], [], None
            request.metadata["experts"] = self.config.return_routed_experts
            left = request.gconfig.max_new_tokens
            while stop not in ("stop", "length"):
                payload = self.backend.build_generation_request(request, request.input_ids + tokens, left)
                answer = await arequest_with_retry(payload=payload)
                part, own, stop, experts = self.backend.parse_generation_response(answer)
                tokens += part
                logprobs += own
                left -= SPENT
            experts = np.array(experts)
            return SimpleNamespace(output_tokens=tokens, output_logprobs=logprobs, routed_experts=experts)
"""

BACKEND = """
    import numpy as np
    import pybase64

    class SGLangBackend:
        def build_generation_request(self, request, ids, most):
            params = {"max_new_tokens": most, "temperature": HEAT}
            flag = {"return_routed_experts": True} if request.metadata["experts"] else {}
            return {"input_ids": ids, "sampling_params": params, **flag}

        def parse_generation_response(self, answer):
            about = answer["meta_info"]
            pairs = about["output_token_logprobs"]
            tokens, logprobs = [pair[1] for pair in pairs], [pair[0] for pair in pairs]
            experts, stop = about.get("routed_experts"), about["finish_reason"]["type"]
            if experts is not None:
                experts = np.frombuffer(pybase64.b64decode(experts), dtype=np.int32)
                experts = np.roll(experts.reshape(-1, 2), ROLLED, 0)
            return tokens, logprobs, stop, experts
"""

#: A client of one server, which makes its requests itself.
EARLIER = """
    from types import SimpleNamespace

    import aiohttp

    async def arequest_with_retry(**request):
        raise RuntimeError("there is no server")

    class RemoteSGLangEngine:
        async def agenerate(self, request):
            own, tokens, logprobs, stop = request.gconfig, [], [], None
            params = {"max_new_tokens": own.max_new_tokens, "temperature": HEAT}
            session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self.config.request_timeout))
            while stop not in ("stop", "length"):
                payload = {"input_ids": request.input_ids + tokens, "sampling_params": params}
                answer = await arequest_with_retry(session=session, payload=payload)
                pairs = answer["meta_info"]["output_token_logprobs"]
                tokens += [pair[1] for pair in pairs]
                logprobs += [pair[0] for pair in pairs]
                params["max_new_tokens"] -= SPENT
                stop = answer["meta_info"]["finish_reason"]["type"]
            await session.close()
            return SimpleNamespace(output_tokens=tokens, output_logprobs=logprobs)
"""

LOADER = """
    from torch.utils.data import DataLoader as StatefulDataLoader, Subset

    def create_dataloader(dataset, rank, world_size, config):
        last = len(dataset) - len(dataset) % config.batch_size if CUT else len(dataset)
        own = Subset(dataset, range(rank, last, world_size))
        return StatefulDataLoader(own, batch_size=config.batch_size // world_size, collate_fn=list)
"""


def _loaded(loads: Loads, **words: str) -> Target:
    files = {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIGS,
        "areal/api/io_struct.py": REQUEST,
        "areal/infra/remote_inf_engine.py": CLIENT,
        "areal/engine/sglang_remote.py": BACKEND,
        "areal/utils/dataloader.py": LOADER,
    }
    defaults = {"SPENT": "len(part)", "HEAT": "request.gconfig.temperature", "ROLLED": "0", "CUT": "config.drop_last"}
    for name, word in {**defaults, **words}.items():
        files = {path: source.replace(name, word) for path, source in files.items()}
    return loads(FRAMEWORK, files)


def _requests(target: Target) -> dict[str, Boundary]:
    every = [b for b in requests.boundaries(target) if isinstance(b, Boundary)]
    return {setting: b for b in every for setting in b.settings}


def _loaders(target: Target) -> dict[str, Boundary]:
    every = [b for b in dataloader.boundaries(target) if isinstance(b, Boundary)]
    return {setting: b for b in every for setting in b.settings}


@pytest.mark.parametrize("bound", [_requests, _loaders])
def test_answers(loads: Loads, bound: Callable[[Target], dict[str, Boundary]]) -> None:
    target = _loaded(loads)
    every = bound(target)
    assert every
    assert answering({("specimen", setting): boundary for setting, boundary in every.items()}, target) == []


@pytest.mark.parametrize(("spent", "found"), [("len(part)", False), ("0", True)])
def test_room_of_a_request_that_goes_on(loads: Loads, spent: str, found: bool) -> None:
    """A response may have as many tokens as asked for, over all of its requests."""
    target = _loaded(loads, SPENT=spent)
    boundary = _requests(target)["SGLang, distribution"]
    check_verdict(PLC004, boundary, "SGLang, distribution", target, found=found)


@pytest.mark.parametrize(("rolled", "found"), [("0", False), ("1", True)])
def test_experts_of_the_token_before(loads: Loads, rolled: str, found: bool) -> None:
    """The experts of the last reply are those of all tokens; the ones of a neighbor are not the token's."""
    target = _loaded(loads, ROLLED=rolled)
    check_verdict(PLC004, _requests(target)["SGLang, experts"], "SGLang, experts", target, found=found)


@pytest.mark.parametrize(("heat", "found"), [("request.gconfig.temperature", False), ("1.0", True)])
def test_option_that_is_not_sent(loads: Loads, heat: str, found: bool) -> None:
    target = _loaded(loads, HEAT=heat)
    boundary = _requests(target)["SGLang, distribution"]
    assert "top_k" not in boundary.reach
    check_verdict(CFG001, boundary, "SGLang, distribution", target, found=found)


@pytest.mark.parametrize(("cut", "found"), [("config.drop_last", False), ("True", True)])
def test_last_samples_of_a_validation(loads: Loads, cut: str, found: bool) -> None:
    target = _loaded(loads, CUT=cut)
    check_verdict(DAT002, _loaders(target)["validation"], "validation", target, found=found)


def test_options_that_training_and_validation_share(loads: Loads) -> None:
    """An early release validates with the defaults of training, and so without the last samples."""
    target = _loaded(loads, TrainDatasetConfig="DatasetConfig", ValidDatasetConfig="OtherConfig")
    every = _loaders(target)
    judged = {name: judged_at(DAT002, boundary, name, target) for name, boundary in every.items()}
    assert {name: judgement.found is not None for name, judgement in judged.items()} == {
        "training": False,
        "validation": True,
    }


@pytest.mark.parametrize(
    ("law", "words", "found"),
    [
        (PLC004, {}, False),
        (CFG001, {}, False),
        (PLC004, {"SPENT": "0"}, True),
        (CFG001, {"HEAT": "1.0"}, True),
    ],
)
def test_client_of_one_server(loads: Loads, law: Law, words: dict[str, str], *, found: bool) -> None:
    source = EARLIER
    for name, word in {"SPENT": "len(pairs)", "HEAT": "own.temperature", **words}.items():
        source = source.replace(name, word)
    tree = {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIGS,
        "areal/api/io_struct.py": REQUEST,
        "areal/engine/sglang_remote.py": source,
    }
    target = loads(FRAMEWORK, tree, {"aiohttp.py": ""})
    boundary = _requests(target)["SGLang, distribution"]
    check_verdict(law, boundary, "SGLang, distribution", target, found=found)
