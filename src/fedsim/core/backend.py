"""The backend that a program is traced for: layers choose their form by it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

_backend: ContextVar[str | None] = ContextVar("backend", default=None)


@contextmanager
def tracing_for(backend: str | None) -> Iterator[None]:
    """Traces everything inside for `backend` ("cpu", "gpu" or "tpu"); None changes nothing."""
    token = _backend.set(backend or _backend.get())
    try:
        yield
    finally:
        _backend.reset(token)


def current_backend() -> str:
    """The backend that is traced for; by default that of JAX's own devices."""
    return _backend.get() or jax.default_backend()
