"""The fake API server over HTTP, as the tests of `kube` have it."""

from __future__ import annotations

from tests.kube.conftest import client, server

__all__ = ["client", "server"]
