"""WSGI middleware: every request is a task until its body has been sent, and one that is cancelled is answered with 503 and the reason.

The answer names what the request held up, `plimsoll-cancelled: RESOURCE`. A sentry may then send it
a second time, with `plimsoll-rerun: 1`: it is not cancelled then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ._app import task
from ._protocol import header
from ._task import Cancelled

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


def default_label(environ: Environ) -> str:
    """Method and path."""
    return f"{environ['REQUEST_METHOD']} {environ.get('PATH_INFO', '')}"


class Middleware:
    """`app = plimsoll.wsgi.Middleware(app)`. The task is in `environ["plimsoll.task"]`, and it is the current one.

    A request runs in a thread, so the application calls `task.check()` where it can stop. After the body has begun, `Cancelled` goes on to the server.
    """

    def __init__(
        self,
        app: Application,
        label: Callable[[Environ], str] = default_label,
        key: Callable[[Environ], int] = lambda environ: 0,
        retry_after_s: int = 1,
    ) -> None:
        """`label` and `key` name a request; `retry_after_s` is what a client is told that was cancelled."""
        self._app = app
        self._label = label
        self._key = key
        self._retry_after = str(retry_after_s)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
        """One request."""
        sent = False
        again = environ.get("HTTP_PLIMSOLL_RERUN") == "1"
        with task(self._label(environ), self._key(environ), again=again) as request:
            environ["plimsoll.task"] = request
            chunks: Iterable[bytes] = ()
            try:
                chunks = self._app(environ, start_response)
                for chunk in chunks:
                    sent = sent or bool(chunk)
                    yield chunk
            except Cancelled as cancelled:
                if sent:
                    raise
                body = f"cancelled: {cancelled}\n".encode()
                headers = [
                    ("Content-Type", "text/plain; charset=utf-8"),
                    ("Content-Length", str(len(body))),
                    ("Retry-After", self._retry_after),
                    ("plimsoll-cancelled", header(request.resource)),
                ]
                start_response("503 Service Unavailable", headers, sys.exc_info())
                yield body
            finally:
                close = getattr(chunks, "close", None)
                if close is not None:
                    close()
