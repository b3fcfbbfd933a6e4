"""One step of carrying out a plan that fails because of a bug of ours must not keep the others from being done.

`apply.executor` and the writers wrap what they do for one pod or workload in a step. A step that fails is logged with
the id of the bug, counted, and tried again with a later plan.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from windlass.model.bug import bug_of
from windlass.model.errors import WindlassError

log = logging.getLogger(__name__)


class StepGuard:
    def __init__(self, count: Callable[[str], None] = lambda bug: None) -> None:
        """`count` is called with the id of each bug."""
        self._count = count

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Ends normally if the block fails with an internal error."""
        try:
            yield
        except WindlassError:
            raise  # an answer of the server, or what a user has to mend: the caller knows what to do
        except Exception as error:  # whatever it is: it concerns this step, and must not concern the others
            bug = bug_of(error)
            self._count(bug.id)
            log.exception("bug %s: %s failed, and all else goes on; please report it with these lines", bug.id, what)
