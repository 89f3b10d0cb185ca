"""Sampling through SkyRL's Tinker server: requests for several samples of a prompt, and their replies."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import PromptIds
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, ScriptedResponse, fit_to_length, sampling_option
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived
from rl_sentinel.adapters.skyrl.arguments import CONFIG
from rl_sentinel.adapters.skyrl.inference_clients import CLIENTS, digest
from rl_sentinel.adapters.skyrl.inference_fakes import Servers
from rl_sentinel.adapters.skyrl.tinker_backend import BACKEND, CHUNKS
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import claims

SAMPLE, CLIENT = f"{BACKEND}.sample", CLIENTS[0]
PREPARE = "skyrl.tinker.engine.prepare_sample_batch"
_CODE: Mapping[str, str] = {
    "backend": BACKEND,
    "prepare": PREPARE,
    "client": CLIENT,
    "model_input": "skyrl.tinker.api.ModelInput",
    "parameters": "skyrl.tinker.api.SamplingParams",
    "request": "skyrl.tinker.types.SampleInput",
}

#: Group -> field of a client's sampling parameters -> two values of it.
FIELDS: Mapping[str, Mapping[str, tuple[Scalar, Scalar]]] = {
    "distribution": {"temperature": (0.7, 0.3), "top_p": (0.9, 0.5), "top_k": (20, 5)},
    "stop words": {"stop": ("first", "other")},
    "stop tokens": {"stop_token_ids": ("1", "2")},
}
#: A field that a client sets under another name: stop tokens are a list of numbers in ``stop``.
_FIELD = {"stop_token_ids": "stop"}

#: The first token of prompt 0 (of prompt n it is ``_FIRST + n``), and the tokens of each prompt's second chunk.
_FIRST, _REST = 1_000, [7, 8]

_DOCS = (
    "tinker/engine.py, prepare_sample_batch: a unique seed per sample, so that the samples of a request differ; "
    "skyrl_train_backend.py, _aggregate_sample_results: the sequences of a request with tokens, log-probs, stop reason"
)
_HELP = "tinker/api.py, SamplingParams: the sampling parameters of a request"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the replies to a client under each group of sampling parameters.

    There are no boundaries in releases whose engines are not servers.
    """
    if not target.has(SAMPLE) or not target.has(f"{CLIENT}.sample") or target.fails(BACKEND):
        return
    if "_inference_engine_client.sample(" not in inspect.getsource(target.find(BACKEND)):
        return  # earlier releases sample with their own engines, without servers
    for path in _CODE.values():
        if why := target.fails(path) or ("" if target.has(path) else f"{path} is absent"):
            yield Unbound(SAMPLE, "batch", why)
            return
    yield from bindable(target, *(_boundary(target, group, knobs) for group, knobs in FIELDS.items()))


@dataclass(slots=True)
class SeededServers(Servers):
    """Fakes of servers that give equal replies to equal requests with equal seeds.

    ``prompts`` has the script numbers of each prompt; a request with a new seed gets the prompt's next script, or the
    last one.
    """

    prompts: list[list[int]] = field(default_factory=list)
    seeds: dict[int, list[object]] = field(default_factory=dict)

    def reply(self, ids: list[int], params: Mapping[str, Any]) -> tuple[list[int], list[float], str]:
        """Tokens, log-probs and stop reason of a reply."""
        self.parameters.append({name: value for name, value in params.items() if name != "seed"})
        number = ids[0] - _FIRST if ids and 0 <= ids[0] - _FIRST < len(self.prompts) else 0
        prompt, known = self.prompts[number], self.seeds.setdefault(number, [])
        if params.get("seed") not in known:
            known.append(params.get("seed"))
        script = self.scripts[prompt[min(known.index(params.get("seed")), len(prompt) - 1)]]
        tokens, logprobs, reason, _ = script.sample(list(ids), int(params["max_tokens"]), self.room)
        return tokens, logprobs, reason


def sample_requests(  # noqa: PLR0913 - the target's code, and what its servers sample
    code: dict[str, Any],
    cfg: Any,  # noqa: ANN401 - the target's class
    rows: list[dict[str, Any]],
    groups: list[int],
    room: int,
    options: Settings,
) -> dict[str, list[Any]]:
    """Request samples; return their tokens and log-probs, and a digest of the first parameters that a server receives.

    A client sends one request for each prompt, with as many samples as the prompt has rows. A missing reply, or one
    with a wrong stop reason, gives wrong tokens and infinite log-probs.
    """
    prompts = [[n for n, _ in part] for _, part in groupby(enumerate(groups), lambda item: item[1])]
    starts = [[_FIRST + number, *_REST] for number, part in enumerate(prompts) for _ in part]
    scripts = [
        ScriptedResponse(start, row["tokens"], row["logprobs"], [0] * len(row["tokens"]))
        for start, row in zip(starts, rows, strict=True)
    ]
    servers = SeededServers(scripts, room, prompts=prompts)
    client = code["client"](proxy_url="proxy", server_urls=["server"], data_parallel_size=1, tokenizer=None)
    client._get_session = servers.session  # noqa: SLF001 - the transport
    backend = bare_instance(
        code["backend"],
        _cfg=cfg,
        _inference_engine_client=client,
        _inference_engines_initialized=True,
        _model_ids_to_role={"policy": "policy"},
        _model_id="policy",
        _base_lora_signature=None,
    )
    requests = {
        str(number): ("policy", _request(code, number, len(part), room, options)) for number, part in enumerate(prompts)
    }
    # Releases that can also sample with their own engines choose the servers by this name.
    with replaced_globals(inspect.unwrap(code["backend"].sample).__globals__, _SKYRL_USE_NEW_INFERENCE=True):
        results = backend.sample(code["prepare"](requests))
    sequences = [one for number in requests for one in results[number].sequences]
    columns: dict[str, list[Any]] = {
        "tokens": [],
        "logprobs": [],
        "parameters": [digest(servers.parameters[0])] * len(rows),
    }
    for row, one in zip(rows, [*sequences, *[None] * len(rows)], strict=False):
        size = len(row["tokens"])
        ends = one is not None and (one.stop_reason == "length") == (size == room)
        columns["tokens"].append(fit_to_length(one.tokens if ends else [], size, WRONG))
        columns["logprobs"].append(fit_to_length(one.logprobs if ends else [], size, float("inf")))
    return columns


def _request(code: Mapping[str, Any], number: int, samples: int, room: int, options: Settings) -> Any:  # noqa: ANN401
    """The request for the samples of one prompt, as the server's endpoint builds it from a client's request."""
    values = {_FIELD.get(name, name): sampling_option(name, value) for name, value in options.items()}
    chunks = [code["chunk"](tokens=tokens) for tokens in ([_FIRST + number], list(_REST))]
    return code["request"](
        base_model=None,
        prompt=code["model_input"](chunks=chunks).to_types(),
        sampling_params=code["parameters"](max_tokens=room, seed=number, **values).to_types(),
        num_samples=samples,
        checkpoint_id="",
        prompt_logprobs=False,
        seq_id=None,
        sampling_session_id=None,
    )


def _boundary(target: Target, group: str, knobs: Mapping[str, tuple[Scalar, Scalar]]) -> Boundary:
    chunk = next((path for path in CHUNKS if target.has(path)), CHUNKS[0])
    functions = {name: Constant(Function(path)) for name, path in {**_CODE, "chunk": chunk}.items()}
    return one_call(
        path=f"{PREPARE} -> {SAMPLE} -> {CLIENT}.sample",
        stage="batch",
        call=sample_requests,
        name="samples",
        arguments={
            "code": Table(functions),
            "cfg": Config(CONFIG),
            "rows": EachRow(Table(row_fields("tokens", "logprobs"))),
            "groups": PromptIds("list"),
            "room": Derived(lambda inputs: inputs.mini_batch.width),
            "options": AllSettings(),
        },
        produced_by={"rows": "tinker/api.py, asample: the prompt, the sampling parameters and num_samples of a client"},
        outputs=row_outputs(Use("samples"), "rollout_logprob", "token")
        | {"parameters of the request": Output("B", "", at=Use("samples")["parameters"], form=PerRow("list"))},
        settings={group: {}},
        claims=claims(_DOCS, conserves=True) | claims(_HELP, knobs=knobs),
        reach="a client of the Tinker server calls sample",
        requires=(prompts_are_contiguous, no_empty_response),
    )
