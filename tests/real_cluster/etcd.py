"""etcd of the test cluster, spoken to directly: wiped between tests, compacted to make watches too old.

Started by `control_plane`. Uses the JSON gateway that etcd serves beside gRPC, so that no etcd client is needed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import urllib3
from tests.real_cluster.service import Service, free_ports

_BATCH = 2000
_KEPT = ("/registry/masterleases/", "/registry/leases/kube-system/", "/registry/ranges/")
"""What API servers keep about themselves; never wiped."""


class Etcd:
    """A single etcd member without TLS and without fsync, on loopback."""

    def __init__(self, program: Path, folder: Path) -> None:
        client, peer = free_ports(2)
        self.url = f"http://127.0.0.1:{client}"
        peer_url = f"http://127.0.0.1:{peer}"
        self._pool = urllib3.PoolManager(maxsize=2, retries=False)
        self.service = Service(
            "etcd",
            [
                str(program),
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={self.url}",
                f"--advertise-client-urls={self.url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=default={peer_url}",
                "--unsafe-no-fsync",
                "--quota-backend-bytes=4294967296",
                f"--max-txn-ops={_BATCH}",
                "--log-level=warn",
            ],
            folder / "etcd.log",
            self.healthy,
        )

    def healthy(self) -> bool:
        try:
            answer = self._pool.request("GET", f"{self.url}/health", timeout=2)
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200

    def keys(self) -> set[str]:
        """Every key that Kubernetes wrote."""
        found = self._call("range", {**_prefix("/registry/"), "keys_only": True})
        return {base64.b64decode(each["key"]).decode() for each in found.get("kvs", ())}

    def delete(self, keys: Iterable[str]) -> None:
        """Delete keys behind the API server's back; its watch caches hear of it as of any other delete."""
        left = sorted(keys)
        while left:
            batch, left = left[:_BATCH], left[_BATCH:]
            self._call("txn", {"success": [{"request_delete_range": {"key": _encoded(key)}} for key in batch]})

    def keep_only(self, keys: set[str]) -> None:
        """Delete everything but these and what API servers keep about themselves."""
        self.delete(key for key in self.keys() - keys if not key.startswith(_KEPT))

    def revision(self) -> int:
        return int(self._call("range", {"key": _encoded("/"), "limit": 1})["header"]["revision"])

    def compact(self) -> int:
        """Forget all history up to now; a watch from an older version gets 410. Returns the revision."""
        revision = self.revision()
        self._call("compaction", {"revision": str(revision), "physical": True})
        return revision

    def _call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._pool.request("POST", f"{self.url}/v3/kv/{verb}", body=json.dumps(body), timeout=60)
        if answer.status != 200:
            raise RuntimeError(f"etcd refused {verb}: {answer.status} {answer.data.decode(errors='replace')}")
        return dict(json.loads(answer.data))


def _prefix(text: str) -> dict[str, str]:
    return {"key": _encoded(text), "range_end": _encoded(text[:-1] + chr(ord(text[-1]) + 1))}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
