"""The part of `embedded.verbs.Verbs` that controllers and nodes use, so that they can be given something else in a
test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from windlass.embedded.controllers.objects import Tree

ChangeHandler = Callable[[str, Tree, "Tree | None"], None]


class Client(Protocol):
    def get(self, resource: str, namespace: str, name: str) -> Tree: ...

    def list(
        self, resource: str, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> list[Tree]: ...

    def create(self, resource: str, namespace: str, obj: Tree) -> Tree: ...

    def update(self, resource: str, namespace: str, name: str, obj: Tree, subresource: str = "") -> Tree: ...

    def patch(self, resource: str, namespace: str, name: str, merge: Tree, subresource: str = "") -> Tree: ...

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
