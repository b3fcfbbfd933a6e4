"""What is fuzzed: each target draws an input that is plain JSON, and plays it. Whatever it raises is a finding.

An input that is refused with a clear error is right. A traceback, a decision that fails or sets something aside, an
answer of 500 and an error in a log are findings. `runner` counts the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import tempfile
from abc import abstractmethod
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import yaml
from tests.embedded.api import sequences
from tests.embedded.api.desk import APPLY, Desk
from tests.embedded.in_process_cluster import InProcessCluster
from tests.fuzz import samples
from tests.fuzz.engine_targets import NOW, Kernels, Worlds
from tests.fuzz.mutate import Mutator, strange_value
from tests.fuzz.operator_target import Operators
from tests.fuzz.target import Finding, Target, few, no_logged_errors, refusals
from tests.worlds.virtual_client import InProcessKubeClient, Network
from tests.worlds.virtual_cluster import identity

from windlass.embedded.api.errors import ApiError
from windlass.embedded.fleet import default_fleet, read_fleet
from windlass.embedded.runtime.fleet_nodes import fleet_nodes
from windlass.embedded.runtime.simulated_nodes import SimulatedNodes
from windlass.embedded.server.server import ApiServer
from windlass.kube.errors import ApiError as AnsweredError
from windlass.kube.kubeconfig import load_kubeconfig, resolve_context
from windlass.kube.request import Request
from windlass.model.errors import WindlassError
from windlass.model.unstructured import Unstructured

PATCH_TYPES = (sequences.MERGE, sequences.STRATEGIC, sequences.JSON, APPLY)


class Objects(Target):
    """An object is created, changed by a patch and shown by the API machinery."""

    name, share = "objects", 20

    def __init__(self) -> None:
        self._samples = (*samples.BUILT_IN, *samples.CUSTOM)
        self._mutator = Mutator(self._samples)

    def draw(self, rng: Random) -> Any:
        return self._mutator.tree(rng.choice(self._samples), rng, few(rng))

    def play(self, drawn: Any) -> None:
        drawn, desk = _as_sent(drawn), Desk()
        desk.create(samples.CUSTOM[0])
        kind = desk.machinery.kinds.by_kind(str(drawn.get("apiVersion")), str(drawn.get("kind")))
        if kind is None:
            return
        with refusals(ApiError):
            msgspec.json.encode(desk.create(drawn))
        with refusals(ApiError):
            decoded, _ = desk.machinery.decode(kind, drawn)
            msgspec.json.encode(desk.machinery.table(kind, [decoded], 0.0))


class Patches(Target):
    name, share = "patches", 15

    def __init__(self) -> None:
        self._mutator = Mutator(samples.BUILT_IN)

    def draw(self, rng: Random) -> Any:
        target, content_type = rng.choice(samples.BUILT_IN), rng.choice(PATCH_TYPES)
        patch = self._mutator.tree({**target, "status": {"phase": "x"}}, rng, few(rng))
        if content_type == sequences.JSON:
            paths = (
                "/spec",
                "/spec/containers/0",
                "/metadata/labels/a~1b",
                "/spec/-",
                "",
                "/metadata",
                "x",
                "/-1",
                "/~2",
            )
            operations = ("add", "remove", "replace", "test", "move", "copy", "x")
            patch = [
                {"op": rng.choice(operations), "path": rng.choice(paths), "from": rng.choice(paths), "value": value}
                for value in (strange_value(rng), patch)[: rng.randint(1, 2)]
            ]
        elif rng.random() < 0.5:
            patch.pop("apiVersion", None)
        return {"target": target, "patch": patch, "type": content_type, "force": rng.random() < 0.5}

    def play(self, drawn: Any) -> None:
        drawn, desk = _as_sent(drawn), Desk()
        with refusals(ApiError):
            desk.create(drawn["target"])
            before = json.dumps(sorted(desk.objects.items()))
            try:
                desk.patch(drawn["target"], drawn["patch"], drawn["type"], force=drawn["force"])
            except ApiError:
                if json.dumps(sorted(desk.objects.items())) != before:
                    raise Finding("a refused patch has changed something") from None
                raise


class Requests(Target):
    """Requests to the API server's handlers, and then a minute of controllers and kubelets on what came of them."""

    name, share = "requests", 20

    def __init__(self) -> None:
        self._samples = [sample for sample in samples.BUILT_IN if sample["kind"] not in ("Namespace", "Node")]
        self._mutator = Mutator(samples.BUILT_IN)
        self._kinds = Desk().machinery.kinds
        self._nodes = fleet_nodes(default_fleet(), float(NOW))[:2]

    def draw(self, rng: Random) -> Any:
        """An object is created, and then something is done to it."""
        sample = rng.choice(self._samples)
        kind = self._kinds.by_kind(sample["apiVersion"], sample["kind"])
        assert kind is not None
        folder = f"{kind.root}{'/namespaces/default' if kind.namespaced else ''}/{kind.plural}"
        first = self._mutator.tree(sample, rng, rng.choice((0, 1, 1, 2)))
        requests = [_request("POST", folder, first, [], "application/json")]
        for _ in range(rng.randint(0, 3)):
            requests.append(self._draw_request(rng, sample, folder))
        return requests

    def _draw_request(self, rng: Random, sample: Unstructured, folder: str) -> Any:
        method = rng.choice(("PUT", "PATCH", "PATCH", "GET", "DELETE"))
        path = folder if rng.random() < 0.1 else f"{folder}/{sample['metadata']['name']}"
        body = self._mutator.tree(sample, rng, rng.choice((0, 1, 1, 2)))
        if rng.random() < 0.4:
            path += rng.choice(
                ("/status", "/status", "/scale", "/eviction", "/binding", "/log", "/ephemeralcontainers")
            )
            body = self._mutator.tree(rng.choice(self._statuses(sample["kind"])), rng, few(rng))
        fields = ("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "dryRun", "fieldManager")
        query = [[rng.choice(fields), str(strange_value(rng, "a"))] for _ in range(rng.choice((0, 0, 0, 0, 1)))]
        return _request(method, path, body, query, rng.choice(PATCH_TYPES) if method == "PATCH" else "application/json")

    def _statuses(self, kind: str) -> list[Unstructured]:
        """Of objects of this kind; what a kubelet or a controller would write."""
        found = [
            {"status": sample["status"]} for sample in samples.BUILT_IN if sample["kind"] == kind and "status" in sample
        ]
        return found or [{"status": {"completedIndexes": "0-2", "phase": "Running", "replicas": 3, "conditions": []}}]

    def play(self, drawn: Any) -> None:
        with no_logged_errors():
            asyncio.run(self._play(drawn))

    async def _play(self, drawn: Any) -> None:
        cluster = InProcessCluster()
        cluster.now = float(NOW)
        nodes = SimulatedNodes(cluster.verbs, cluster.cache, self._nodes, clock=lambda: cluster.now)
        nodes.register(cluster.now)
        cluster.run(*nodes.controllers)
        assert cluster.controllers is not None
        nodes.attach_loop(cluster.controllers.loop)
        server = ApiServer(cluster.verbs.registry, identity(), kubelet_api=nodes.kubelet_api)
        client = InProcessKubeClient(server, Network(Random(1), latency=0.0))
        for request in drawn:
            sent = Request(
                request["method"],
                request["path"],
                tuple((name, value) for name, value in request["query"]),
                msgspec.Raw(json.dumps(request["body"]).encode()),
                request["type"],
            )
            with refusals(AnsweredError):
                await client._send_once(sent)
            self._bind_pods(cluster)
        cluster.pass_time(60.0)

    def _bind_pods(self, cluster: InProcessCluster) -> None:
        cluster.step()
        for pod in cluster.verbs.list("pods"):
            if not pod["spec"].get("nodeName"):
                meta = pod["metadata"]
                with refusals(ApiError):
                    cluster.verbs.bind(meta["namespace"], meta["name"], self._nodes[0].tree["metadata"]["name"])


def _request(method: str, path: str, body: Any, query: list[list[str]], content_type: str) -> Unstructured:
    return {"method": method, "path": path, "query": query, "body": body, "type": content_type}


def _as_sent(tree: Any) -> Any:
    """As it is read from a request."""
    return msgspec.json.decode(json.dumps(tree).encode())


class Files(Target):
    """What is read from files by commands: one line of error, or an answer."""

    def play(self, drawn: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "input.yaml"
            file.write_bytes(drawn["text"].encode("utf-8", "surrogatepass"))
            self.read(drawn["how"], file)

    @abstractmethod
    def read(self, how: str, file: Path) -> None: ...


class Configurations(Files):
    name, share = "configurations", 10

    def __init__(self) -> None:
        self._mutator = Mutator(tree for _, tree in samples.configurations())

    def draw(self, rng: Random) -> Any:
        if rng.random() < 0.1:
            return {"how": "counters", "text": self._mutator.text(samples.COUNTERS, rng, rng.randint(1, 4))}
        how, tree = rng.choice(samples.configurations())
        text = yaml.dump(self._mutator.tree(tree, rng, rng.randint(0, 4)), Dumper=yaml.CSafeDumper, allow_unicode=True)
        return {"how": how, "text": self._mutator.text(text, rng, rng.choice((0, 0, 1, 2)))}

    def read(self, how: str, file: Path) -> None:
        from windlass.dump.configuration import load_configuration_file
        from windlass.model.fleet import expand_fleet
        from windlass.node.config_source import read_yaml
        from windlass.node.exporter.counters import read_counters
        from windlass.sharing.mig_config import read_mig_configs
        from windlass.sharing.plugin_config import resolve_config

        with refusals(WindlassError):
            if how == "configuration":
                load_configuration_file(file)
            elif how == "fleet":
                fleet = read_fleet(file)
                if sum(pool.count for pool in fleet.spec.pools) < 5000:
                    expand_fleet(fleet)
            elif how == "plugin":
                resolve_config(read_yaml(file))
            elif how == "mig":
                read_mig_configs(read_yaml(file))
            elif how == "kubeconfig":
                resolve_context(load_kubeconfig([file]))
            else:
                with contextlib.suppress(UnicodeDecodeError):
                    read_counters(file.read_text(encoding="utf-8"))


class Dumps(Files):
    """A dump or a scenario, through the commands as a user calls them."""

    name, share = "dumps", 10

    def __init__(self) -> None:
        trees = [tree for _, tree in samples.scenarios()]
        self._mutator = Mutator([*trees, *(obj for seed in range(20) for obj in samples.cluster(Random(seed)))])

    def draw(self, rng: Random) -> Any:
        if rng.random() < 0.3:
            _, tree = rng.choice(samples.scenarios())
            made = self._mutator.tree(tree, rng, rng.randint(1, 3))
            return {"how": "simulate", "text": self._text(made, rng)}
        objects = [self._mutator.tree(obj, rng, rng.choice((0, 0, 0, 1, 2))) for obj in samples.cluster(rng)]
        pods = [obj for obj in objects if isinstance(obj, dict) and obj.get("kind") == "Pod"]
        metadata = rng.choice(pods).get("metadata") if pods else None
        name = metadata.get("name") if isinstance(metadata, dict) else "x"
        how = rng.choice(("plan schedule", "check", f"why pod/{name}", "doctor"))
        return {"how": how, "text": self._text({"apiVersion": "v1", "kind": "List", "items": objects}, rng)}

    def _text(self, tree: Any, rng: Random) -> str:
        text = json.dumps(tree) if rng.random() < 0.5 else yaml.dump(tree, Dumper=yaml.CSafeDumper)
        return self._mutator.text(text, rng, rng.choice((0, 0, 0, 1, 2)))

    def read(self, how: str, file: Path) -> None:
        from windlass.cli.errors import run_command
        from windlass.cli.main import cli

        source = ["-f", str(file)] if how == "check" else [str(file)] if how == "simulate" else ["--from", str(file)]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = run_command(cli, [*how.split(), *source], "windlass")
        text = printed.getvalue()
        if code not in (0, 1, 2, 3) or "Traceback" in text or "a bug in Windlass" in text:
            raise Finding(f"exit code {code}: {text[-2000:]}")
        if "\x1b" in text:
            raise Finding("a raw escape of a terminal is printed")


TARGETS: tuple[type[Target], ...] = (Objects, Patches, Requests, Worlds, Kernels, Configurations, Dumps, Operators)
