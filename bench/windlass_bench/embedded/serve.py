"""The embedded API server as a process of its own, alone: no controllers, no nodes, no scheduler.

    python -m windlass_bench.embedded.serve KUBECONFIG [STATE]

`embedded.contenders` starts it. The kubeconfig is written when it answers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from windlass.embedded.in_process_client import InProcessClient
from windlass.embedded.pki import make_identity, write_kubeconfig
from windlass.embedded.registry.registry import Registry
from windlass.embedded.server.server import ApiServer
from windlass.embedded.store.journal import open_state
from windlass.embedded.store.store import Store

LOOK_SECONDS = 2.0


async def main(kubeconfig: Path, state: Path | None) -> None:
    if state is None:
        store = Store()
    else:
        store, journal = open_state(state)
        journal.start()
    registry = Registry(store)
    InProcessClient(registry).create("namespaces", "", {"metadata": {"name": "default"}})
    identity = make_identity()
    server = ApiServer(registry, identity)
    await server.start()
    write_kubeconfig(kubeconfig, server.url, identity)
    parent = os.getppid()
    while os.getppid() == parent:  # whoever measures may be killed, and should leave nothing behind
        await asyncio.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
