"""Everything that can be done to the store by the rules of the API, in one place.

`verbs` gives it to callers in this process, `server` to those who come by HTTPS; both get the same rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from windlass.embedded.api.kinds import Kinds
from windlass.embedded.registry.checks import Checks
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.deleter import Deleter
from windlass.embedded.registry.placing import Placing
from windlass.embedded.registry.scaling import Scaling
from windlass.embedded.registry.writer import Writer
from windlass.embedded.store.store import Store


class Registry:
    def __init__(
        self, store: Store, kinds: Kinds | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.store = store
        self.kinds = kinds if kinds is not None else Kinds()
        self.context = Context(store, self.kinds, clock)
        self.checks = Checks(self.context)
        self.writer = Writer(self.context, self.checks)
        self.deleter = Deleter(self.context, self.writer)
        self.scaling = Scaling(self.context, self.writer)
        self.placing = Placing(self.context, self.writer, self.deleter)
