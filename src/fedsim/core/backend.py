"""Which kind of device a program is traced for: layers choose their form by it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

_chosen: ContextVar[str | None] = ContextVar("backend", default=None)


@contextmanager
def tracing_for(backend: str | None) -> Iterator[None]:
    """What is traced inside is for `backend`; None changes nothing."""
    token = _chosen.set(backend or _chosen.get())
    try:
        yield
    finally:
        _chosen.reset(token)


def traced_for() -> str:
    """The kind of device that the code which runs now is traced for; by default that of JAX's own devices."""
    return _chosen.get() or jax.default_backend()
