"""An API server with its state in a folder, as a process of its own that can be killed.

python -m tests.embedded.store.stateful FOLDER KUBECONFIG     writes the kubeconfig when it answers
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from windlass.embedded.in_process_client import InProcessClient
from windlass.embedded.pki import load_or_create_identity, write_kubeconfig
from windlass.embedded.registry.registry import Registry
from windlass.embedded.server.server import ApiServer
from windlass.embedded.store.journal import open_state


async def main(folder: Path, kubeconfig: Path) -> None:
    store, journal = open_state(folder)
    journal.start()
    registry = Registry(store)
    verbs = InProcessClient(registry)
    if verbs.find("namespaces", "", "default") is None:
        verbs.create("namespaces", "", {"metadata": {"name": "default"}})
    identity = load_or_create_identity(folder)
    server = ApiServer(registry, identity)
    await server.start()
    write_kubeconfig(kubeconfig, server.url, identity)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
