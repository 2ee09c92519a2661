"""Requests: calls under way, and the comparison of their headers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock, RLock
from typing import Generic, ParamSpec, TypeVar

from pdnn import _core

Result = TypeVar("Result")
T = TypeVar("T")
P = ParamSpec("P")


class Check:
    """An exchange of headers under way before a call.

    Parameters
    ----------
    call : str
        Its name.
    request : _core.Request
        The exchange.
    compare : callable
        Raises ValueError or TypeError, the same on all ranks, unless the headers that are there fit together.
    refused : callable, optional
        Whether no rank has begun the call whose headers do not fit.
    """

    def __init__(
        self,
        call: str,
        request: _core.Request,
        compare: Callable[[], object],
        refused: Callable[[], bool] = bool,
    ) -> None:
        self.call = call
        self.fits = False
        self.refused = refused
        self._request = request
        self._compare = compare

    def test(self) -> bool:
        """Whether the headers are there; raises what `wait` raises."""
        if not self.fits and self._ended(self._request.test, Exception):
            self._compare()
            self.fits = True
        return self.fits

    def wait(self) -> None:
        """Returns when the headers were found to fit."""
        if self.fits:
            return
        self._ended(lambda: self._request.wait(self.call))
        self._compare()
        self.fits = True

    def _ended(self, asked: Callable[[], T], by: type[BaseException] = BaseException) -> T:
        try:
            return asked()
        except by:
            self.fits = True  # there is nothing to compare; the group's next call says what happened
            raise


class Begun:
    """The calls of a group that ``start_`` forms have begun before their headers were compared.

    Where headers do not fit, some ranks may have begun a call and others not. Then calls would meet others
    than their own, so the group takes no more. (Where all ranks have refused a call, none was begun.)
    """

    def __init__(self) -> None:
        self._checks: deque[Check] = deque()
        self._wrong: tuple[Check, Exception] | None = None
        self._lock = Lock()  # of threads that wait for requests

    def add(self, check: Check) -> None:
        """One more, in the order of calls."""
        with self._lock:
            while self._checks and self._checks[0].fits:
                self._checks.popleft()
            self._checks.append(check)

    def match(self, call: str, until: Check | None = None, *, wait: bool = True) -> bool:
        """Whether the headers of all calls before are there and fit, or of those before `until`.

        Parameters
        ----------
        call : str
            The name of the call that comes after them.
        until : Check, optional
            That call's own.
        wait : bool
            Whether to wait for the headers.

        Raises
        ------
        ValueError
            If those of one do not fit; at each further call, on all ranks.
        """
        if until is not None and until.fits:
            return True
        while (first := self._first(until)) is not None:
            misfit: tuple[Check, Exception] | None = None
            try:  # without the lock: others may wait for other calls
                if wait:
                    first.wait()
                elif not first.test():
                    return False
            except (ValueError, TypeError) as error:
                misfit = None if first.refused() else (first, error)
            with self._lock:
                if self._checks and self._checks[0] is first:
                    self._checks.popleft()
                    self._wrong = misfit
        if self._wrong is not None and until is not self._wrong[0]:
            wrong, first_error = self._wrong
            raise ValueError(
                f"{call}: an earlier start_{wrong.call} did not match on all ranks, after which this group's "
                f"calls would meet others than their own; use a group that was split off before, or end the "
                f"job ({first_error})"
            ) from first_error
        return True

    def _first(self, until: Check | None) -> Check | None:
        """The oldest before `until` that is not known to fit, unless one did not."""
        with self._lock:
            first = self._checks[0] if self._checks else None
            return None if first is until or self._wrong is not None else first


class Request(Generic[Result]):
    """A call that was started. Do not use its arrays before it is done, and never if it is dropped before.

    Then MPI may go on with the call, and arrays of more than 4 KB stay in memory for good. Any thread of the
    rank may test requests and wait for them.

    Parameters
    ----------
    request : _core.Request
        The call itself.
    result : object
        What `wait` returns.
    check : Check, optional
        The exchange of headers beside it, whose error comes first.
    begun : Begun, optional
        The group's calls that were begun before it, whose errors come before that.
    """

    def __init__(
        self,
        request: _core.Request,
        result: Result,
        check: Check | None = None,
        begun: Begun | None = None,
    ) -> None:
        self._request = request
        self._result = result
        self._check = check
        self._begun = begun
        self._failure: Exception | None = None

    def test(self) -> bool:
        """Advances the call; returns whether it is done. Raises what `wait` raises."""
        return self._unless_failed(self._test)

    def _test(self) -> bool:
        if (check := self._check) is not None:
            if self._begun is not None and not self._begun.match(check.call, check, wait=False):
                return False
            if not check.test():
                return False
            self._check = None
        return self._request.test()

    def wait(self) -> Result:
        """Returns, once the call is done, what its form without ``start_`` returns.

        Raises
        ------
        ValueError, TypeError
            If the ranks' arguments do not match; again at each further call.
        CommunicationError
            As every wait; again at each further one.
        """
        try:
            self._unless_failed(self._wait)
        except Exception:
            raise
        except BaseException as error:
            self._failure = _core.CommunicationError(
                f"a wait for this call was ended by {type(error).__name__}, so its result is not known"
            )
            raise
        return self._result

    def _wait(self) -> None:
        if (check := self._check) is not None:
            if self._begun is not None:
                self._begun.match(check.call, check)
            check.wait()
            self._check = None
        self._request.wait()

    def _unless_failed(self, asked: Callable[[], T]) -> T:
        """What is asked, or again the error that ended the call, which the core then takes for done."""
        if self._failure is not None:
            raise self._failure
        try:
            found = asked()
        except Exception as error:
            if self._check is None or not isinstance(error, (ValueError, TypeError)):
                self._failure = error  # headers that do not fit say so again
            raise
        if self._failure is not None:  # which another thread has met meanwhile
            raise self._failure
        return found


class Turn:
    """Lets one thread of a rank make calls at a time: those of two could meet others of other ranks.

    Parameters
    ----------
    ranks : int
        Of the group; one alone meets nobody.
    """

    def __init__(self, ranks: int) -> None:
        self._lock = RLock() if ranks > 1 else None

    def within(self, call: str, made: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What it returns; meanwhile this thread is in a call. RuntimeError if another one is."""
        if self._lock is None:
            return made(*args, **kwargs)
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                f"{call}: another thread of this rank is in a call of this communicator; let one thread of "
                "each rank make the calls"
            )
        try:
            return made(*args, **kwargs)
        finally:
            self._lock.release()
