"""Fakes for slime's rollout: a scripted inference server, a tokenizer of numbers, and the arguments of a run."""

import inspect
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, Sampled, ScriptedResponse
from rl_sentinel.adapters.slime.samples import reward_dict

#: The first token of prompt n is ``FIRST + n``: it tells the server which response to sample.
FIRST = 7000

#: The path of the reward function, for ``--custom-rm-path``.
REWARD = f"{__name__}.labeled_reward"


class Words:
    """A tokenizer whose words are token ids."""

    special_tokens_map: dict[str, str] = {}  # noqa: RUF012 - as the attribute of a tokenizer

    def encode(self, text: str, **_options: object) -> list[int]:
        """The token ids of a text."""
        return [int(word) for word in text.split()]

    def __call__(self, text: Any, **_options: object) -> dict[str, Any]:  # noqa: ANN401 - one text, or several
        """The token ids of one text or of several texts, in the dict format of transformers."""
        return {"input_ids": self.encode(text) if isinstance(text, str) else [self.encode(part) for part in text]}

    def apply_chat_template(self, messages: Any, *_tools: object, **options: object) -> Any:  # noqa: ANN401 - messages
        """The contents of the messages, without a template, as token ids or as text."""
        text = messages if isinstance(messages, str) else "".join(message["content"] for message in messages)
        return self.encode(text) if options.get("tokenize", True) else text

    def decode(self, ids: list[int], **_options: object) -> str:
        """The text, with a space after each token id."""
        return "".join(f"{token} " for token in ids)


@dataclass(slots=True)
class Server:
    """A fake inference server, which samples scripted responses, and aborts a request at a weight update.

    ``room`` is the maximum response length. ``requests`` has the sampling parameters of all requests, by response. With
    ``exact``, a request whose token limit is not the number of remaining tokens gets :data:`WRONG` tokens.
    """

    responses: list[ScriptedResponse]
    room: int
    requests: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    exact: bool = False

    async def post(self, _url: str, payload: dict[str, Any] | None = None, *_more: object, **_options: object) -> Any:  # noqa: ANN401
        """The reply to a request, in SGLang's format; empty if the request does not sample."""
        if not payload or "sampling_params" not in payload:
            return {}
        ids = list(payload["input_ids"]) if "input_ids" in payload else Words().encode(payload["text"])
        params = dict(payload["sampling_params"])
        row = ids[0] - FIRST if ids else -1
        if row not in range(len(self.responses)):  # a request without its prompt
            return _reply(Sampled([WRONG], [0.0], "stop", 0), len(ids))
        self.requests.setdefault(row, []).append(params)
        script, most = self.responses[row], int(params["max_new_tokens"])
        sampled = script.sample(ids, most, self.room)
        if self.exact and most != self.room - (len(ids) - len(script.prompt)):
            sampled = sampled._replace(tokens=[WRONG] * len(sampled.tokens))
        return _reply(sampled, len(ids))

    async def get(self, *_passed: object, **_options: object) -> dict[str, Any]:
        """An empty reply, because there are no workers."""
        return {"workers": [], "urls": []}


def _reply(sampled: Sampled, prompt_tokens: int) -> dict[str, Any]:
    # SGLang leaves the version out of the reply to a request that it aborts.
    version = {} if sampled.reason == "abort" else {"weight_version": str(sampled.version)}
    meta_info = {
        **version,
        "finish_reason": {"type": sampled.reason},
        "output_token_logprobs": [(p, t, None) for p, t in zip(sampled.logprobs, sampled.tokens, strict=True)],
        "prompt_tokens": prompt_tokens,
        "completion_tokens": len(sampled.tokens),
        "cached_tokens": 0,
    }
    return {"text": Words().decode(sampled.tokens), "meta_info": meta_info}


class Silent:
    """A progress bar that prints nothing."""

    def __init__(self, *_args: object, **_options: object) -> None:
        """Ignore the options."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        """A method that does nothing."""
        return lambda *_args, **_options: None


class Arguments(Namespace):
    """The arguments of a run. An argument that is not set is None, which is the default of most options."""

    def __getattr__(self, name: str) -> None:
        """None, the default of an argument that is not set."""
        if name.startswith("__"):
            raise AttributeError(name)


def arguments(room: int, samples: int, **more: object) -> Arguments:
    """The arguments of a run with at most ``room`` tokens per response and ``samples`` responses per prompt."""
    defaults: dict[str, Any] = {
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
    names: dict[str, Any] = {"partial_rollout": True, **defaults, **more}
    return Arguments(**{name: value for name, value in names.items() if value is not None})


async def labeled_reward(args: Any, samples: Any, **_more: object) -> Any:  # noqa: ANN401 - a namespace; a sample, or several
    """The reward of each sample, which is the number in its label.

    The result is a dict if a reward key is set, and a list for several samples.
    """
    if isinstance(samples, list):
        return [await labeled_reward(args, sample) for sample in samples]
    reward = float(samples.label)
    return reward_dict(reward, "seven" if samples.index else "7") if args.reward_key else reward


@contextmanager
def serving(rollout: Callable[..., Any], server: Server) -> Iterator[dict[str, Any]]:
    """Replace HTTP with the server in the module of a rollout function, and yield the globals of the module."""
    module: dict[str, Any] = inspect.unwrap(rollout).__globals__
    auto_tokenizer = SimpleNamespace(from_pretrained=lambda *_args, **_options: Words())
    fakes: dict[str, Any] = {
        "post": server.post,
        "get": server.get,
        "load_tokenizer": lambda *_args, **_options: Words(),
        "load_processor": lambda *_args, **_options: None,
        "AutoTokenizer": auto_tokenizer,
        "AutoProcessor": SimpleNamespace(from_pretrained=lambda *_args, **_options: None),
        "get_rollout_num_engines": lambda _args: 1,
        "abort_servers_until_idle": server.get,
        "tqdm": Silent,
        "print": lambda *_args, **_options: None,
        "EVAL_PROMPT_DATASET": {},
    }
    with replaced_globals(module, **fakes):
        reset_singleton(module["GenerateState"])
        try:
            yield module
        finally:
            reset_singleton(module["GenerateState"])


def reset_singleton(state: Any) -> None:  # noqa: ANN401 - a class of slime
    """Delete the instance of a singleton class, so that the next call creates a new one."""
    getattr(type(state), "_instances", {}).pop(state, None)
