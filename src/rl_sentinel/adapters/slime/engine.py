"""Doubles for slime's rollout: a server that samples known responses, a tokenizer of numbers, a run's arguments."""

import inspect
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.slime.doubles import replaced

#: The first token of a prompt says which response the server samples.
FIRST = 7000

#: What a token is where a request does not go on from what was sampled.
WRONG = -1

#: The reward model of the audit, as ``--custom-rm-path`` names it.
REWARD = f"{__name__}.labelled_reward"


@dataclass(slots=True)
class Response:
    """One response to sample: tokens and their log-probs, and the weights that sample each."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    versions: list[int]


class Words:
    """A tokenizer whose words are numbers."""

    special_tokens_map: dict[str, str] = {}  # noqa: RUF012 - as the attribute of a tokenizer

    def encode(self, text: str, **_options: object) -> list[int]:
        """The numbers."""
        return [int(word) for word in text.split()]

    def __call__(self, text: Any, **_options: object) -> dict[str, Any]:  # noqa: ANN401 - one text, or several
        """The numbers of each text."""
        return {"input_ids": self.encode(text) if isinstance(text, str) else [self.encode(one) for one in text]}

    def apply_chat_template(self, messages: Any, *_tools: object, **options: object) -> Any:  # noqa: ANN401 - messages
        """The text of the messages, which has no words of a template; its numbers where they are asked for."""
        text = messages if isinstance(messages, str) else "".join(one["content"] for one in messages)
        return self.encode(text) if options.get("tokenize", True) else text

    def decode(self, ids: list[int], **_options: object) -> str:
        """The text, in which each number ends with a space."""
        return "".join(f"{one} " for one in ids)


@dataclass(slots=True)
class Server:
    """An inference server that samples known responses, and stops a request where new weights arrive.

    ``room`` is how long a response can be; ``asked`` collects the sampling parameters of all requests by response.
    """

    responses: list[Response]
    room: int
    asked: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    async def post(self, _url: str, payload: dict[str, Any] | None = None, *_more: object, **_about: object) -> Any:  # noqa: ANN401
        """The answer to a request, in the server's own form."""
        if not payload or "sampling_params" not in payload:
            return {}
        ids = list(payload["input_ids"]) if "input_ids" in payload else Words().encode(payload["text"])
        params = dict(payload["sampling_params"])
        row = ids[0] - FIRST
        self.asked.setdefault(row, []).append(params)
        return self._sampled(self.responses[row], ids, int(params["max_new_tokens"]))

    async def get(self, *_passed: object, **_about: object) -> dict[str, Any]:
        """No workers to stop."""
        return {"workers": [], "urls": []}

    def _sampled(self, one: Response, ids: list[int], most: int) -> dict[str, Any]:
        start = len(ids) - len(one.prompt)
        spare = most if len(one.tokens) == self.room else 0  # a response that fills its room has not come to an end
        known = [*one.tokens, *[WRONG] * spare]
        versions = [*one.versions, *one.versions[-1:] * spare]
        logprobs = [*one.logprobs, *[0.0] * spare]
        end = start
        while end < min(len(known), start + most) and versions[end] == versions[start]:
            end += 1
        goes_on = ids == [*one.prompt, *known[:start]]
        tokens = known[start:end] if goes_on else [WRONG] * (end - start)
        why = "length" if end == start + most else "stop" if end == len(known) else "abort"
        version = {} if why == "abort" else {"weight_version": str(versions[end - 1])}
        about = {
            **version,  # which the server leaves out of the answer to a request that it stops
            "finish_reason": {"type": why},
            "output_token_logprobs": [(p, t, None) for p, t in zip(logprobs[start:end], tokens, strict=True)],
            "prompt_tokens": len(ids),
            "completion_tokens": end - start,
            "cached_tokens": 0,
        }
        return {"text": Words().decode(tokens), "meta_info": about}


class Silent:
    """A progress bar that shows nothing."""

    def __init__(self, *_args: object, **_options: object) -> None:
        """Take the options of a bar."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        """A method that does nothing."""
        return lambda *_args, **_options: None


class Arguments(Namespace):
    """The arguments of a run; an option that is not given is None, as most options of the command line are."""

    def __getattr__(self, name: str) -> None:
        """The default of an option."""
        if name.startswith("__"):
            raise AttributeError(name)


def arguments(room: int, samples: int, **more: object) -> Arguments:
    """The arguments of a run whose responses have this room; ``samples`` per prompt."""
    given: dict[str, Any] = {
        "hf_checkpoint": "model",
        "sglang_server_concurrency": 512,
        "sglang_router_ip": "server",
        "sglang_router_port": 1,
        "rollout_num_gpus": 1,
        "rollout_num_gpus_per_engine": 1,
        "rollout_temperature": 1.0,
        "rollout_top_p": 1.0,
        "rollout_top_k": -1,
        "rollout_max_response_len": room,
        "rollout_skip_special_tokens": False,
        "rollout_global_dataset": True,
        "n_samples_per_prompt": samples,
        "n_samples_per_eval_prompt": samples,
        "custom_rm_path": REWARD,
        "input_key": "text",
        "metadata_key": "metadata",
        "apply_chat_template": False,
        "use_http2": False,
        "slime_router_middleware_paths": [],
    }
    names: dict[str, Any] = {"partial_rollout": True, **given, **more}
    return Arguments(**{name: value for name, value in names.items() if value is not None})


async def labelled_reward(_args: object, samples: Any, **_more: object) -> Any:  # noqa: ANN401 - a sample, or several
    """The reward that the label of a sample states; several samples get one each."""
    return [float(one.label) for one in samples] if isinstance(samples, list) else float(samples.label)


@contextmanager
def serving(rollout: Callable[..., Any], server: Server) -> Iterator[dict[str, Any]]:
    """The module of a rollout function with the server in the place of HTTP, and a state of its own."""
    module: dict[str, Any] = inspect.unwrap(rollout).__globals__
    loads = SimpleNamespace(from_pretrained=lambda *_args, **_options: Words())
    doubles: dict[str, Any] = {
        "post": server.post,
        "get": server.get,
        "load_tokenizer": lambda *_args, **_options: Words(),
        "load_processor": lambda *_args, **_options: None,
        "AutoTokenizer": loads,
        "AutoProcessor": SimpleNamespace(from_pretrained=lambda *_args, **_options: None),
        "get_rollout_num_engines": lambda _args: 1,
        "abort_servers_until_idle": server.get,
        "tqdm": Silent,
        "print": lambda *_args, **_options: None,
        "EVAL_PROMPT_DATASET": {},
    }
    with replaced(module, **doubles):
        forget(module["GenerateState"])
        try:
            yield module
        finally:
            forget(module["GenerateState"])


def forget(state: Any) -> None:  # noqa: ANN401 - a class of slime
    """Let the next call make the one state of the process anew."""
    getattr(type(state), "_instances", {}).pop(state, None)
