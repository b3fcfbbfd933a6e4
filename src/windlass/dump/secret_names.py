"""Asks a live cluster whether Secrets of certain names exist: by their metadata, so that no content is ever sent.

Called by `cli.check` for the pull secrets that manifests name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, NotFound
from windlass.kube.request import METADATA_ONLY, Request
from windlass.kube.resources import Resource

SECRETS = Resource("Secret", "secrets", "", "v1")
MOST_NAMES = 30
"""Names that are asked for; of the others nothing is known."""


async def existing_secrets(client: KubeClient, keys: Iterable[str]) -> dict[str, bool]:
    """`namespace/name` → whether it exists; what may not be read is left out."""
    wanted = sorted(set(keys))[:MOST_NAMES]
    answers = await asyncio.gather(*(_exists(client, key) for key in wanted))
    return {key: there for key, there in zip(wanted, answers, strict=True) if there is not None}


async def _exists(client: KubeClient, key: str) -> bool | None:
    try:
        await client.send(Request("GET", SECRETS.path(key), accept=METADATA_ONLY))
    except NotFound:
        return False
    except ApiError:
        return None
    return True
