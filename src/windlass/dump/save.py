"""Writes a collected cluster to disk as the files that `--from` reads, redacted and renamed if asked for.

Called by `windlass dump`. A target that ends in .json or .yaml is one file without logs; any other is a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from windlass.dump.anonymize import NameAnonymizer
from windlass.dump.collect import GPU_STACK, CollectedCluster
from windlass.dump.redact import redact_log, redact_object

LogLineFilter = Callable[[str], bool]
"""Whether diagnosis recognises a line of a log; other lines are redacted."""


class Privacy(msgspec.Struct, frozen=True):
    """What is left out of the dump."""

    redact: bool = False
    rename: bool = False
    keep_line: LogLineFilter = lambda line: False


def save_dump(collected: CollectedCluster, target: Path, privacy: Privacy) -> None:
    """The target must not exist yet, or be an empty folder."""
    objects = [redact_object(obj) if privacy.redact else obj.data for obj in collected.objects]
    renaming = NameAnonymizer(objects) if privacy.rename else None
    if renaming is not None:
        objects = [renaming.anonymize(tree) for tree in objects]
    if target.suffix in (".json", ".yaml", ".yml"):
        target.write_bytes(_list(objects))
        return
    target.mkdir(parents=True, exist_ok=True)
    by_kind: dict[str, list[dict[str, Any]]] = {kind: [] for kind in sorted(collected.listed_kinds)}
    for tree in objects:
        by_kind.setdefault(str(tree.get("kind")), []).append(tree)
    for kind, trees in by_kind.items():
        (target / f"{kind.lower()}.json").write_bytes(_list(trees, kind))
    _save_logs(collected, target, privacy, renaming)


def _list(objects: list[dict[str, Any]], kind: str = "") -> bytes:
    document = {"apiVersion": "v1", "kind": f"{kind}List", "items": objects}
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def _save_logs(collected: CollectedCluster, target: Path, privacy: Privacy, renaming: NameAnonymizer | None) -> None:
    """`logs/NAMESPACE_POD_CONTAINER.log` and `hosts/NODE/SOURCE.log`."""

    def anonymous(name: str) -> str:
        return renaming.anonymize_text(name) if renaming is not None else name

    for log in collected.logs:
        text = log.text
        if privacy.redact:
            text = redact_log(text, bool(GPU_STACK.search(log.pod)), privacy.keep_line)
        file = target / "logs" / f"{anonymous(log.namespace)}_{anonymous(log.pod)}_{log.container}.log"
        file.parent.mkdir(exist_ok=True)
        file.write_text(anonymous(text), encoding="utf-8")
    for host in collected.hosts:
        file = target / "hosts" / anonymous(host.node) / f"{host.source}.log"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(anonymous(host.text), encoding="utf-8")
