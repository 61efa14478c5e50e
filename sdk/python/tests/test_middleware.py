"""ASGI and WSGI: a request is a task until its answer is out, and 503 if it was cancelled before that began."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

import plimsoll
from plimsoll import asgi, wsgi

from .agent import Agent
from .reader import fields
from .test_agent import _order

Look = Callable[[str], list[str]]
SCOPE = {"type": "http", "method": "GET", "path": "/report"}


def _ask(app: asgi.Application, scope: dict[str, Any], sent: list[Any]) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(asgi.Middleware(app, key=lambda scope: 7)(scope, receive, send))


def _cancel(agent: Agent, task: plimsoll.Task) -> None:
    agent.accept()
    agent.say(_order(task, 1, "it holds table"))


def test_asgi_a_request_is_a_task(look: Look) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["plimsoll.task"] is plimsoll.current()
        assert look("task")[0].endswith(" GET /report") and fields(look("task")[0])["key"] == "7"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    sent: list[Any] = []
    _ask(app, dict(SCOPE), sent)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert fields(look("lane")[0])["completed"] == "1"


@pytest.mark.parametrize(("said", "flags"), [([(b"plimsoll-rerun", b"1")], "8"), ([(b"plimsoll-rerun", b"0")], "1")])
def test_asgi_what_is_sent_a_second_time_is_not_cancelled(look: Look, said: list[tuple[bytes, bytes]], flags: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert fields(look("task")[0])["flags"] == flags
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    sent: list[Any] = []
    _ask(app, {**SCOPE, "headers": said}, sent)
    assert sent[0]["status"] == 200


def test_asgi_cancelled_is_503(agent: Agent) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        _cancel(agent, scope["plimsoll.task"])
        await asyncio.Event().wait()

    sent: list[Any] = []
    _ask(app, dict(SCOPE), sent)
    start, body = sent
    assert start["status"] == 503 and (b"retry-after", b"1") in start["headers"]
    assert any(name == b"plimsoll-cancelled" and value for name, value in start["headers"])
    assert body["body"] == b"cancelled: it holds table\n"


def test_asgi_cancelled_after_the_answer_has_begun(agent: Agent) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        _cancel(agent, scope["plimsoll.task"])
        await asyncio.Event().wait()

    sent: list[Any] = []
    with pytest.raises(plimsoll.Cancelled):
        _ask(app, dict(SCOPE), sent)
    assert [message["status"] for message in sent] == [200]


def test_asgi_what_is_no_request_is_no_task(look: Look) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert plimsoll.current() is None

    _ask(app, {"type": "lifespan"}, [])
    assert look("task") == []


class Server:
    """A WSGI server for one request."""

    def __init__(self, app: wsgi.Application) -> None:
        self.environ: dict[str, Any] = {}
        setup_testing_defaults(self.environ)
        self.environ.update(PATH_INFO="/report", QUERY_STRING="")
        self.status = ""
        self.body = b""
        chunks = validator(wsgi.Middleware(app))(self.environ, self._start)
        try:
            for chunk in chunks:
                self.body += chunk
        finally:
            chunks.close()  # type: ignore[attr-defined]

    def _start(self, status: str, headers: list[tuple[str, str]], error: Any = None) -> Callable[[bytes], object]:
        self.status, self.headers = status, headers
        return lambda data: None


class Body:
    """A body that says when it was closed."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        self.closed = True


def test_wsgi_a_request_is_a_task_until_its_body_is_out(look: Look) -> None:
    bodies: list[Body] = []

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        def chunks() -> Iterator[bytes]:
            assert environ["plimsoll.task"] is plimsoll.current()
            assert look("task")[0].endswith(" GET /report")
            yield b"o"
            assert fields(look("task")[0])["turn"] == "1"
            yield b"k"

        start_response("200 OK", [("Content-Type", "text/plain")])
        bodies.append(Body(chunks()))
        return bodies[0]

    answered = Server(app)
    assert (answered.status, answered.body) == ("200 OK", b"ok")
    assert bodies[0].closed
    assert fields(look("lane")[0])["completed"] == "1"
    assert plimsoll.current() is None


@pytest.mark.parametrize("began", [False, True], ids=["before", "after"])
def test_wsgi_cancelled(agent: Agent, began: bool) -> None:
    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        if began:
            yield b"o"
        task = environ["plimsoll.task"]
        _cancel(agent, task)
        while True:
            task.check()

    if began:
        with pytest.raises(plimsoll.Cancelled):
            Server(app)
    else:
        answered = Server(app)
        assert (answered.status, answered.body) == ("503 Service Unavailable", b"cancelled: it holds table\n")
        assert ("Retry-After", "1") in answered.headers
