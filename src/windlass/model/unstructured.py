"""The type of a Kubernetes object that is kept as plain JSON, as client-go calls it. Imported by every room."""

from __future__ import annotations

from typing import Any, TypeAlias

Unstructured: TypeAlias = dict[str, Any]
