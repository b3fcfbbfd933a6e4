"""The part of `embedded.in_process_client.InProcessClient` that controllers and kubelets use; tests can pass
another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from windlass.model.unstructured import Unstructured

ChangeHandler = Callable[[str, Unstructured, "Unstructured | None"], None]


class Client(Protocol):
    def get(self, resource: str, namespace: str, name: str) -> Unstructured: ...

    def list(
        self, resource: str, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> list[Unstructured]: ...

    def create(self, resource: str, namespace: str, obj: Unstructured) -> Unstructured: ...

    def update(
        self, resource: str, namespace: str, name: str, obj: Unstructured, subresource: str = ""
    ) -> Unstructured: ...

    def patch(
        self, resource: str, namespace: str, name: str, merge: Unstructured, subresource: str = ""
    ) -> Unstructured: ...

    def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        grace: int | None = None,
        propagation: str = "Background",
        uid: str = "",
    ) -> None: ...

    def subscribe(self, resource: str, handler: ChangeHandler) -> Callable[[], None]: ...
