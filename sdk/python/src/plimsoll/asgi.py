"""ASGI middleware: every HTTP request is a task, and one that is cancelled is answered with 503 and the reason.

The answer names what the request held up, `plimsoll-cancelled: RESOURCE`. A sentry may then send it
a second time, with `plimsoll-rerun: 1`: it is not cancelled then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ._app import task
from ._protocol import header
from ._task import Cancelled

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def default_label(scope: Scope) -> str:
    """Method and path."""
    return f"{scope['method']} {scope['path']}"


class Middleware:
    """`app = plimsoll.asgi.Middleware(app)`. The task is in `scope["plimsoll.task"]`, and it is the current one.

    Only HTTP requests are tasks: a WebSocket that waits for its client for hours is nobody's culprit. What was cancelled after its answer has begun ends as the
    server ends a request whose application raised.
    """

    def __init__(
        self, app: Application, label: Callable[[Scope], str] = default_label, key: Callable[[Scope], int] = lambda scope: 0, retry_after_s: int = 1
    ) -> None:
        """`label` and `key` name a request; `retry_after_s` is what a client is told that was cancelled."""
        self._app = app
        self._label = label
        self._key = key
        self._retry_after = str(retry_after_s).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            again = (b"plimsoll-rerun", b"1") in scope.get("headers", ())
            async with task(self._label(scope), self._key(scope), again=again) as request:
                scope["plimsoll.task"] = request
                await self._app(scope, receive, watched)
        except Cancelled as cancelled:
            if begun:
                raise
            body = f"cancelled: {cancelled}\n".encode()
            headers = [
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", str(len(body)).encode()),
                (b"retry-after", self._retry_after),
                (b"plimsoll-cancelled", header(request.resource).encode()),
            ]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            await send({"type": "http.response.body", "body": body})
