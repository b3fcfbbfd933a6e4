"""The cases, made from `scenes/*.yaml`: a scene is a list of calls of `World` and `stacks`, one line each.

A call with `in` belongs only to these versions of the scene: `base`, `c` (the decisive evidence removed) or `d` (the
fault repaired). Versions `a` (other names, versions and wording) and `b` (noise) are derived. `score` asks about them.

    python -m tests.diagnose_fresh.cases FOLDER      writes them as dumps
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tests.diagnose_fresh import stacks
from tests.diagnose_fresh.noise import add_noise
from tests.diagnose_fresh.world import Obj, World

SCENES = Path(__file__).parent / "scenes"
SECOND = Path(__file__).parent / "second"
SIXTH = Path(__file__).parent / "sixth"
EIGHTH = Path(__file__).parent / "eighth"
NINTH = Path(__file__).parent / "ninth"
PRACTICE = Path(__file__).parent / "practice"
GITHUB = "https://github.com/"


def scenes(folder: Path = SCENES) -> dict[str, Obj]:
    return {name: scene for file in sorted(folder.glob("*.yaml")) for name, scene in _read(file).items()}


def _read(file: Path) -> Obj:
    read: Obj = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
    return read


def cases(folder: Path = SCENES) -> Iterator[tuple[Obj, World]]:
    """(what is expected, the cluster) of every case and its variants."""
    for name, scene in scenes(folder).items():
        want = {"id": name, "accept": [], "also": [], **{key: scene[key] for key in FIELDS if key in scene}}
        want["source"] = GITHUB + scene["report"] if "report" in scene else "practice"
        yield want, world_of(scene, "base")
        if "otherWords" in scene:
            yield from _variants(name, scene, want)


FIELDS = ("target", "code", "accept", "also", "shallow", "cause")


def _variants(name: str, scene: Obj, want: Obj) -> Iterator[tuple[Obj, World]]:
    words = list(scene["otherWords"].items())
    target = want["target"]
    for old, new in words:
        target = target.replace(old, new)
    yield {**want, "id": f"{name}a", "variant": "a", "target": target}, world_of(scene, "base").renamed(words)
    noisy = world_of(scene, "base")
    add_noise(noisy, int(name[1:]))
    yield {**want, "id": f"{name}b", "variant": "b"}, noisy
    bare: Obj = {**want, "accept": [], "also": []}
    blind = {"variant": "c", "code": "UNKNOWN", "established": want["code"]}
    yield {**bare, **blind, "id": f"{name}c"}, world_of(scene, "c")
    yield {**bare, "id": f"{name}d", "variant": "d", "code": "NONE"}, world_of(scene, "d")


def world_of(scene: Obj, version: str) -> World:
    world = World(scene.get("version", "v1.31.4"))
    for call in scene["scene"]:
        ((name, body),) = ((key, value) for key, value in call.items() if key != "in")
        if version in call.get("in", (version,)):
            _call(world, name, body)
    return world


def _call(world: World, name: str, body: Any) -> None:
    if name == "remove":
        world.items = [item for item in world.items if item["kind"] not in body]
    elif name == "amend":
        item = next(
            item for item in world.items if (item["kind"], item["metadata"]["name"]) == (body["kind"], body["name"])
        )
        for field, values in body["data"].items():
            item[field].update(values)
    elif hasattr(stacks, name):
        getattr(stacks, name)(world, **body)
    else:
        getattr(world, name)(**body)


def main() -> None:
    target = Path(sys.argv[1])
    for want, world in cases():
        world.write(target / want["id"], want)


if __name__ == "__main__":
    main()
