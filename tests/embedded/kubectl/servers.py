"""The servers that the kubectl session runs on, and what each step of it finds in its environment."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Place:
    """A cluster with at least one node that runs pods."""

    kubectl: Path
    kubeconfig: Path
    node: str
    image: str


def environment(place: Place, chapter: str, folder: Path) -> dict[str, str]:
    """For one chapter: a namespace of its own, and a kubeconfig that points at it."""
    name = f"session-{chapter}"
    content = yaml.safe_load(place.kubeconfig.read_text())
    server = content["clusters"][0]["cluster"]["server"]
    for context in content["contexts"]:
        context["context"]["namespace"] = name
    mine, nobody = folder / "kubeconfig", folder / "nobody"
    mine.write_text(yaml.safe_dump(content))
    content["users"][0]["user"] = {"token": "wrong"}
    nobody.write_text(yaml.safe_dump(content))
    tools = folder / "bin"
    tools.mkdir()
    (tools / "kubectl").symlink_to(place.kubectl)
    return {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HOME": str(folder),
        "KUBECONFIG": str(mine),
        "NOBODY": str(nobody),
        "NS": name,
        "NODE": place.node,
        "IMAGE": place.image,
        "SERVER": server,
        "LANG": "C.UTF-8",
    }


def kubectl_at_hand(path: Path) -> Path:
    """The built one; a test that has none fails rather than taking whatever is on the machine."""
    found = shutil.which(str(path))
    assert found, path
    return Path(found)
