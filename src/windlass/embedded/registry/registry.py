"""Everything that can be done to the store by the rules of the API, in one place.

`verbs` gives it to callers in this process, `server` to those who come by HTTPS; both get the same rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from windlass.embedded.api.machinery import Machinery
from windlass.embedded.registry.checks import Checks
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.definitions import Definitions
from windlass.embedded.registry.deleter import Deleter
from windlass.embedded.registry.listing import Listing
from windlass.embedded.registry.placing import Placing
from windlass.embedded.registry.scaling import Scaling
from windlass.embedded.registry.writer import Writer
from windlass.embedded.store.store import Store


class Registry:
    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        """`store` may have objects already: those of the last run."""
        self.store = store
        self.machinery = Machinery()
        self.kinds = self.machinery.kinds
        self.context = Context(store, self.machinery, clock)
        self.checks = Checks(self.context)
        self.writer = Writer(self.context, self.checks)
        self.deleter = Deleter(self.context, self.writer)
        self.listing = Listing(self.context)
        self.scaling = Scaling(self.context, self.writer)
        self.placing = Placing(self.context, self.writer, self.deleter)
        self.definitions = Definitions(self.context, self.writer, self.deleter)
