"""The fake of aiohttp keeps a request, and is the reply to it."""

import asyncio
from typing import Any

from rl_sentinel.adapters.kit.http_fake import HttpFake


class _Echo(HttpFake):
    async def json(self) -> dict[str, Any]:
        return {"got": self.asked}


def test_the_reply_is_to_the_request() -> None:
    async def ask() -> dict[str, Any]:
        request = {"rows": 2}
        async with aiohttp.ClientSession() as session, session.post("http://engine/generate", json=request) as reply:
            reply.raise_for_status()
            answer: dict[str, Any] = await reply.json()
            return answer

    aiohttp = _Echo()
    assert (aiohttp.asked, aiohttp.status) == ({}, 200)
    assert asyncio.run(ask()) == {"got": {"rows": 2}}
