"""Fakes of SkyRL's inference engines and servers, which return known responses."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from json import dumps
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.scripted_sampling import ScriptedResponse

#: The first token of prompt 0. The first token of prompt n is ``FIRST + n``, by which the fakes recognize it.
FIRST = 1_000


@dataclass(slots=True)
class Servers:
    """Fakes of the engines, which return known responses; the first request gets its reply last.

    ``room`` is the maximum length of a response.
    """

    scripts: list[ScriptedResponse]
    room: int
    parameters: list[Mapping[str, Any]] = field(default_factory=list)

    async def generate(self, request: Mapping[str, Any], **_options: object) -> dict[str, Any]:
        """The reply of an engine to a request for several prompts."""
        params = request["sampling_params"]
        replies = [self.reply(ids, params) for ids in request["prompt_token_ids"]]
        await self._wait()
        return {
            "responses": [""] * len(replies),
            "response_ids": [reply[0] for reply in replies],
            "response_logprobs": [reply[1] for reply in replies] if params.get("logprobs") is not None else None,
            "stop_reasons": [reply[2] for reply in replies],
        }

    @asynccontextmanager
    async def post(self, _url: str, json: Mapping[str, Any], **_options: object) -> AsyncIterator[Any]:
        """The reply of a server over HTTP: one response, the tokens of a text, or an empty text of tokens."""
        if "tokens" in json:
            body: dict[str, Any] = {"prompt": ""}
        elif isinstance(json.get("prompt"), str):
            body = {"tokens": [ord(character) for character in json["prompt"]]}
        else:
            body = await self._choice(json)

        async def parsed(**_options: object) -> dict[str, Any]:
            return body

        async def raw() -> bytes:
            return dumps(body).encode()

        yield SimpleNamespace(status=200, json=parsed, read=raw, raise_for_status=lambda: None)

    async def _choice(self, json: Mapping[str, Any]) -> dict[str, Any]:
        """A response; a request for a completion has its parameters beside the prompt, and gets a text."""
        params = json.get("sampling_params", json)
        tokens, logprobs, reason = self.reply(json["token_ids"] if "token_ids" in json else json["prompt"], params)
        await self._wait()
        if "prompt" in json:
            # vLLM leaves special tokens out of the text by default: here, the token that ends the response.
            ends = reason == "stop" and params.get("skip_special_tokens", True)
            text = "".join(map(chr, tokens[:-1] if ends else tokens))
            return {"choices": [{"text": text, "finish_reason": reason, "logprobs": {"token_logprobs": logprobs}}]}
        content = {"content": [{"logprob": logprob} for logprob in logprobs]}
        about = content if params.get("logprobs") is not None else None
        return {"choices": [{"token_ids": tokens, "finish_reason": reason, "logprobs": about}]}

    async def session(self) -> Any:  # noqa: ANN401 - a fake of aiohttp's
        """The HTTP session of the client."""
        return SimpleNamespace(post=self.post, closed=False)

    def reply(self, ids: list[int], params: Mapping[str, Any]) -> tuple[list[int], list[float], str]:
        """Tokens, log-probs and stop reason of the row that the first token of the prompt encodes; else of row 0."""
        self.parameters.append(dict(params))
        row = ids[0] - FIRST if ids and 0 <= ids[0] - FIRST < len(self.scripts) else 0
        tokens, logprobs, reason, _ = self.scripts[row].sample(list(ids), int(params["max_tokens"]), self.room)
        return tokens, logprobs, reason

    async def _wait(self) -> None:
        for _ in range(max(0, 2 * len(self.scripts) - len(self.parameters))):
            await asyncio.sleep(0)
