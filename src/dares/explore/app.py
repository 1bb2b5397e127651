"""The web application: the page, and three addresses that answer it in JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dares.explore.desk import BusyError, Desk
from dares.explore.explorer import Explorer
from dares.explore.measures import MEASURES
from dares.explore.palette import colours
from dares.explore.question import MOST_BYTES, Question, parse_question

HOSTS = ("127.0.0.1", "localhost")
HEADERS = {
    # nothing from elsewhere, nothing inline, no frame around the page
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def build_app(explorers: Sequence[Explorer]) -> Starlette:
    """The application for one model, or for two side by side."""
    desks = [Desk() for _ in explorers]

    async def models(request: Request) -> Response:
        return JSONResponse(_facts(explorers))

    def answering(answer: Callable[[Explorer, Question], dict[str, Any]]) -> Any:
        async def handle(request: Request) -> Response:
            asked = parse_question(await _body(request))
            if not 0 <= asked.model < len(explorers):
                raise ValueError(f"there is no model {asked.model}: {len(explorers)} are loaded")
            explorer = explorers[asked.model]
            return JSONResponse(await desks[asked.model].run(lambda: answer(explorer, asked)))

        return handle

    return Starlette(
        routes=[
            Route("/api/models", models),
            Route("/api/tokens", answering(Explorer.tokens), methods=["POST"]),
            Route("/api/token", answering(Explorer.token), methods=["POST"]),
            Mount("/", StaticFiles(packages=[("dares.explore", "static")], html=True)),
        ],
        middleware=[
            Middleware(_Headers),
            # another site's name that was made to point here is not ours (DNS rebinding)
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
        ],
        exception_handlers={
            ValueError: _sentence(400),
            BusyError: _sentence(503),
            HTTPException: _http_error,
            Exception: _unexpected,
        },
    )


def _facts(explorers: Sequence[Explorer]) -> dict[str, Any]:
    return {
        "models": [explorer.describe() for explorer in explorers],
        "measures": [
            {"name": name, "title": each.title, "about": each.about, "floor": each.floor}
            for name, each in MEASURES.items()
        ],
        "colours": colours(),
    }


async def _body(request: Request) -> bytes:
    """The request's bytes, no more of them than a text needs."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":
        # a form of another site can send anything but this without asking first
        raise HTTPException(415, f"the request must be application/json, got {kind!r}")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPException(
                413, f"the request has more than {MOST_BYTES:,} bytes: shorten the text"
            )
    return body


def _sentence(status: int) -> Any:
    def handle(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, status)

    return handle


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)


def _unexpected(request: Request, error: Exception) -> Response:
    return JSONResponse(
        {"error": "something went wrong here: the terminal that runs dares explore says what"}, 500
    )


class _Headers:
    """Every answer carries HEADERS."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, receive, send_with_headers)
