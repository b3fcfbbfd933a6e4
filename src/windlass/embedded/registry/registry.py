"""Everything that the API can do to the store.

`in_process_client` offers it to callers in this process, `server` to HTTPS clients; the rules are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from windlass.embedded.api.machinery import Machinery
from windlass.embedded.registry.admission_chain import AdmissionChain
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.crd_lifecycle import CrdLifecycle
from windlass.embedded.registry.deleter import Deleter
from windlass.embedded.registry.listing import Listing
from windlass.embedded.registry.pod_subresources import PodSubresources
from windlass.embedded.registry.scale_subresource import ScaleSubresource
from windlass.embedded.registry.writer import Writer
from windlass.embedded.store.store import Store


class Registry:
    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        """`store` may already have objects from an earlier run."""
        self.store = store
        self.machinery = Machinery()
        self.kinds = self.machinery.kinds
        self.context = Context(store, self.machinery, clock)
        self.admission = AdmissionChain(self.context)
        self.writer = Writer(self.context, self.admission)
        self.deleter = Deleter(self.context, self.writer)
        self.listing = Listing(self.context)
        self.scale_subresource = ScaleSubresource(self.context, self.writer)
        self.pod_subresources = PodSubresources(self.context, self.writer, self.deleter)
        self.crd_lifecycle = CrdLifecycle(self.context, self.writer, self.deleter)
