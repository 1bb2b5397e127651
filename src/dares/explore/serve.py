"""Load the models and serve the page, to this machine alone."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec

from dares.evals.subject import load_subject, model_labels

HOST = "127.0.0.1"
TOKENS = 256  # taken at most, unless asked otherwise
MOST = 2  # models side by side


def explore(
    models: Sequence[str],
    *,
    port: int = 0,
    tokens: int = TOKENS,
    ready: Callable[[str], object],
) -> None:
    """Serve until interrupted; `ready` is told the address once it can be opened.

    port 0 is any that is free.
    """
    _check_installed()
    if len(models) > MOST:
        raise ValueError(f"{MOST} models can be compared side by side, got {len(models)}")
    labels = model_labels(models)
    with listen(port) as listener:  # first: loading takes longer than to find a port taken
        import uvicorn

        from dares.explore.app import build_app
        from dares.explore.explorer import Explorer

        explorers = [
            Explorer(load_subject(name), label, most_tokens=tokens)
            for name, label in zip(models, labels, strict=True)
        ]
        config = uvicorn.Config(
            build_app(explorers), log_level="warning", timeout_graceful_shutdown=1
        )
        ready(f"http://{HOST}:{listener.getsockname()[1]}/")
        with suppress(KeyboardInterrupt):  # how it is meant to end
            uvicorn.Server(config).run(sockets=[listener])


def _check_installed() -> None:
    for name in ("starlette", "uvicorn"):
        if find_spec(name) is None:
            raise ValueError(
                f"dares explore needs {name}, which is not installed: pip install 'dares[explore]'"
            )


def listen(port: int) -> socket.socket:
    """A socket of this machine alone."""
    try:
        return socket.create_server((HOST, port))
    except OverflowError as error:
        raise ValueError(f"--port must be between 0 and 65535, got {port}") from error
    except OSError as error:
        known = {errno.EADDRINUSE: "is in use", errno.EACCES: "is not open to you"}
        if error.errno not in known:
            raise
        raise ValueError(
            f"port {port} {known[error.errno]}: choose another with --port, or leave it out and "
            "take a free one"
        ) from error
