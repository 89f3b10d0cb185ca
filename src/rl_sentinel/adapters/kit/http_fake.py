"""A fake of aiohttp for clients that send one request at a time to an inference server."""

from typing import Any, Self


class HttpFake:
    """A fake of aiohttp, its session, and the reply to a request in one object; subclasses define ``json``."""

    ClientError = OSError
    status = 200

    def __init__(self) -> None:
        """Start without a request."""
        self.asked: dict[str, Any] = {}

    def ClientTimeout(self, **_seconds: object) -> None:  # noqa: N802 - the name in aiohttp
        """No time limit."""

    def ClientSession(self, **_options: object) -> Self:  # noqa: N802 - the name in aiohttp
        """This object, as the session."""
        return self

    def post(self, _url: str, *, json: dict[str, Any], **_options: object) -> Self:
        """Store the request, and return this object as the reply to it."""
        self.asked = json
        return self

    async def __aenter__(self) -> Self:
        """Enter the context of the session or of the reply."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Do nothing, since no connection was opened."""

    def raise_for_status(self) -> None:
        """Do nothing: the request succeeded."""
