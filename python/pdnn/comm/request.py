"""Requests: calls under way, and the comparison of their headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from pdnn import _core

Result = TypeVar("Result")


class Check(NamedTuple):
    """An exchange of headers under way before `call`, and what compares them when they are there."""

    call: str
    request: _core.Request
    compare: Callable[[], object]

    def wait(self) -> None:
        """Returns when the headers were found to fit."""
        self.request.wait(self.call)
        self.compare()


class Request(Generic[Result]):
    """A call that was started. Do not use its arrays before it is done, and never if it is dropped before.

    Parameters
    ----------
    request : _core.Request
        The call itself.
    result : object
        What `wait` returns.
    check : Check, optional
        The exchange of headers beside it, whose error comes first.
    """

    def __init__(self, request: _core.Request, result: Result, check: Check | None = None) -> None:
        self._request = request
        self._result = result
        self._check = check

    def test(self) -> bool:
        """Advances the call; returns whether it is done. Raises what `wait` raises."""
        if self._check is not None:
            if not self._check.request.test():
                return False
            self._check.compare()
            self._check = None
        return self._request.test()

    def wait(self) -> Result:
        """Returns, once the call is done, what its form without ``start_`` returns.

        Raises
        ------
        ValueError, TypeError
            If the ranks' arguments do not match; again at each further call.
        CommunicationError
            As every wait.
        """
        if self._check is not None:
            self._check.wait()
            self._check = None
        self._request.wait()
        return self._result
