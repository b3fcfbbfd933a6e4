"""Automatic variants of any dumps: other names and log formats, noise, quoted evidence removed, the fault repaired.

    python -m tests.diagnose_fresh.variants [FOLDER] [--only F02,C01] [-v]

FOLDER as in `score`. a: the names of nodes, of the subject and of its namespace are others, and lines of logs have the
format of another program. b: fifty pods with troubles of their own. c: every text that the answer quotes is removed
from logs, events and statuses, again and again, until nothing is quoted. d: the subject runs on a healthy node.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from tests.diagnose_fresh.noise import add_noise
from tests.diagnose_fresh.score import Result, ask, report, verdict, write_cases
from tests.diagnose_fresh.world import Obj, World

from windlass.diagnose.finding import Diagnosis

KLOG = re.compile(r"^[IWEF]\d{4} [\d:.]+\s+\d+ [\w./]+:\d+\] ")
"""The prefix of lines that Kubernetes' own programs write."""
ROUNDS = 6


class Dump(NamedTuple):
    objects: list[Obj]
    files: dict[str, str]

    def write(self, target: Path) -> Path:
        world = World.__new__(World)
        world.items, world.files = self.objects, self.files
        world.write(target, {})
        return target


def read_dump(folder: Path) -> Dump:
    objects: list[Obj] = []
    for file in sorted(folder.glob("*.json")) + sorted(folder.glob("*.yaml")):
        if file.name != "expected.json":
            text = file.read_text()
            found = [json.loads(text)] if file.suffix == ".json" else yaml.load_all(text, Loader=yaml.CSafeLoader)
            objects += [item for document in found if document for item in _items(document)]
    files = {str(path.relative_to(folder)): path.read_text(errors="replace") for path in folder.glob("*/**/*.log")}
    files |= {str(path.relative_to(folder)): path.read_text(errors="replace") for path in folder.glob("logs/*.log")}
    return Dump(objects, files)


def _items(document: Obj) -> list[Obj]:
    if "items" not in document:
        return [document]
    kind = document.get("kind", "").removesuffix("List")
    return [{"apiVersion": document.get("apiVersion", "v1"), "kind": kind, **item} for item in document["items"]]


# a: other names and formats


def renamed(dump: Dump, want: Obj) -> tuple[Dump, Obj]:
    kind, namespace, name = want["target"].split("/")
    nodes = [item["metadata"]["name"] for item in dump.objects if item["kind"] == "Node"]
    words = {node: f"machine-{place:03}" for place, node in enumerate(sorted(nodes, key=len, reverse=True))}
    words[name] = f"renamed-{len(name)}-x"
    if namespace not in ("default", "kube-system") and len(namespace) > 4 and "gpu" not in namespace:
        words[namespace] = "another-team"
    words = {old: new for old, new in words.items() if len(old) > 3}
    pattern = re.compile("|".join(rf"(?<![\w.-]){re.escape(old)}(?![\w.])" for old in words) or r"(?!)")

    def changed(text: str) -> str:
        return pattern.sub(lambda found: words[found[0]], text)

    objects = json.loads(changed(json.dumps(dump.objects)))
    files = {_path(path, words): _reformatted(changed(text)) for path, text in dump.files.items()}
    target = "/".join((kind, words.get(namespace, namespace), words.get(name, name)))
    return Dump(objects, files), {**want, "target": target}


def _path(path: str, words: dict[str, str]) -> str:
    folder, _, name = path.rpartition("/")
    stem = name.removesuffix(".log").split("_")
    where = "/".join(words.get(part, part) for part in folder.split("/"))
    return f"{where}/{'_'.join(words.get(part, part) for part in stem)}.log"


def _reformatted(text: str) -> str:
    """Kubernetes' own log format becomes logfmt."""
    lines = (KLOG.sub('time="2026-03-10T09:58:01Z" level=info msg=', line) for line in text.splitlines())
    return "\n".join(lines) + "\n"


# b: noise


def crowded(dump: Dump, want: Obj) -> tuple[Dump, Obj]:
    world = World()
    add_noise(world, len(dump.objects))
    known = {(item["kind"], item["metadata"]["name"]) for item in dump.objects}
    more = [item for item in world.items if (item["kind"], item["metadata"]["name"]) not in known]
    return Dump([*dump.objects, *more], {**dump.files, **world.files}), want


# c: what the answer quotes is removed


def without_quotes(dump: Dump, found: Diagnosis) -> Dump | None:
    """The dump without the texts that the answer quotes; None if it quotes nothing that is in it."""
    quoted = [*found.evidence, *(text for link in found.chain for text in link.evidence), found.headline]
    texts = {part for text in quoted for part in (text, text.partition(": ")[2]) if len(part) > 20}
    texts |= {text.removesuffix("...") for text in texts}

    def is_quoted(text: str) -> bool:
        return len(text) > 20 and any(text in other or other in text for other in texts)

    files = {
        path: "".join(line for line in text.splitlines(True) if not is_quoted(line.strip()))
        for path, text in dump.files.items()
    }
    kept = [item for item in dump.objects if item["kind"] != "Event" or not is_quoted(_text_of(item))]
    objects = [{**item, "status": _silenced(item["status"], is_quoted)} if "status" in item else item for item in kept]
    after = Dump(objects, files)
    return None if after == dump else after


def _text_of(event: Obj) -> str:
    return str(event.get("message") or event.get("note") or "")


def _silenced(data: Any, is_quoted: Callable[[str], bool]) -> Any:
    if isinstance(data, dict):
        return {key: _silenced(value, is_quoted) for key, value in data.items()}
    if isinstance(data, list):
        return [_silenced(value, is_quoted) for value in data]
    return "" if isinstance(data, str) and is_quoted(data) else data


# d: the subject runs


def repaired(dump: Dump, want: Obj) -> tuple[Dump, Obj] | None:
    """The subject's pods run on a new node, or it has ended as it should; None for objects without pods."""
    kind, namespace, name = want["target"].split("/")
    if kind not in ("pod", "job", "pytorchjob", "mpijob", "deployment"):
        return None
    world = World()
    world.node("healthy-1", gpu=16, cpu="512", mem="4000Gi", product="NVIDIA-H100-80GB-HBM3")
    objects = []
    for item in dump.objects:
        metadata = item["metadata"]
        if (item["kind"].lower(), metadata.get("namespace", "default"), metadata["name"]) == (kind, namespace, name):
            item = {**item, **(_running(item) if kind == "pod" else {"status": ENDED})}
        is_own = item["kind"] == "Pod" and metadata["name"].startswith(f"{name}-") and kind != "pod"
        objects += [] if is_own else [item]
    files = {path: text for path, text in dump.files.items() if not path.startswith(f"logs/{namespace}_{name}")}
    return Dump([*objects, world.items[-1]], files), want


ENDED = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2036-03-10T10:00:00Z"}]}


def _running(pod: Obj) -> Obj:
    now = "2036-03-10T10:00:00Z"
    spec = {**pod["spec"], "nodeName": "healthy-1", "schedulingGates": []}
    states = [
        {"name": container["name"], "ready": True, "started": True, "state": {"running": {"startedAt": now}}}
        for container in pod["spec"]["containers"]
    ]
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("PodScheduled", "Ready")]
    return {"spec": spec, "status": {"phase": "Running", "conditions": conditions, "containerStatuses": states}}


# The score


def variants(folder: Path, place: Path) -> Iterator[Result]:
    """The answers to all variants of one case."""
    want = json.loads((folder / "expected.json").read_text())
    dump = read_dump(folder)
    for letter, change in (("a", renamed), ("b", crowded), ("d", repaired)):
        changed = change(dump, want)
        if changed is not None:
            after, asked = changed
            found = ask(after.write(place / f"{folder.name}{letter}"), asked["target"])
            if letter == "d":
                asked = {**asked, "code": "NONE", "accept": []}
            named = {**asked, "id": f"{folder.name}{letter}", "variant": letter}
            yield Result(named, found, verdict(named, found.code, found.confidence), 0)
    yield from _blind(dump, want, place / f"{folder.name}c")


def _blind(dump: Dump, want: Obj, place: Path) -> Iterator[Result]:
    first = found = ask(dump.write(place / "0"), want["target"])
    after: Dump | None = dump
    for turn in range(1, ROUNDS):
        after = without_quotes(dump, found)
        if after is None:
            break
        dump = after
        found = ask(dump.write(place / str(turn)), want["target"])
    if found is first:
        return  # it quotes nothing: the objects themselves are the evidence
    right = [want["code"], *want.get("accept", [])]
    true = [*want.get("also", []), *(link.code for link in first.chain)]
    blind = {"variant": "c", "established": found.code if found.code in right else want["code"], "shallow": true}
    named = {**want, **blind, "id": f"{want['id']}c"}
    yield Result(named, found, verdict(named, found.code, found.confidence), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--only", default="", help="ids, separated by commas")
    parser.add_argument("-v", action="store_true", help="print every case, not only those that are not right")
    args = parser.parse_args()
    only = set(filter(None, args.only.split(",")))
    with tempfile.TemporaryDirectory() as place:
        folders = sorted(args.folder.iterdir()) if args.folder else write_cases(Path(place) / "cases")
        asked = [path for path in folders if (path / "expected.json").exists() and (not only or path.name in only)]
        asked = [path for path in asked if path.name[-1].isdigit()]
        results = [result for path in asked for result in variants(path, Path(place) / "variants")]
        report(results, args.v)


if __name__ == "__main__":
    main()
