"""Locks for models that several threads share."""

import threading
from types import TracebackType


class Lock:
    """A re-entrant lock for a `with` statement. A copy, deep or pickled, is a new lock that nobody holds."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type["Lock"], tuple[()]]:
        return Lock, ()
