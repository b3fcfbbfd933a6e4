"""What every target of the fuzzer has: it draws an input that is plain JSON, and plays it."""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

from windlass.embedded.api.errors import ApiError
from windlass.kube.errors import ApiError as AnsweredError


class Finding(AssertionError):
    """Something that must not happen, and is no exception by itself."""


def few(rng: Random) -> int:
    """How many changes: mostly one, since what has many is refused for the first of them."""
    return rng.choice((1, 1, 1, 1, 2, 2, 3, 6))


class Target(ABC):
    name: ClassVar[str]
    share: ClassVar[int]
    """Of a hundred inputs, about so many are for this target."""

    @abstractmethod
    def draw(self, rng: Random) -> Any: ...

    @abstractmethod
    def play(self, drawn: Any) -> None: ...


@contextlib.contextmanager
def refusals(*kinds: type[Exception]) -> Iterator[None]:
    """An error that blames the input is an answer."""
    try:
        yield
    except kinds as error:
        is_answer = isinstance(error, ApiError | AnsweredError)
        if is_answer and error.code >= 500 and error.code != 504:  # Kubernetes' answer to versions that are to come
            raise


@contextlib.contextmanager
def no_logged_errors() -> Iterator[None]:
    """Errors that a boundary logs, so that nobody is harmed, are findings all the same."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = found.append  # type: ignore[assignment]
    root, disabled = logging.getLogger(), logging.root.manager.disable
    root.addHandler(handler)
    logging.disable(logging.NOTSET)
    try:
        yield
    finally:
        root.removeHandler(handler)
        logging.disable(disabled)
    for record in found:
        if record.exc_info and record.exc_info[1]:
            raise record.exc_info[1]
        raise Finding(record.getMessage())
