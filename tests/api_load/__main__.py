"""What a scheduler asks of its API server a minute, idle and busy, beside kube-scheduler with Kueue.

    python -m tests.api_load [--nodes 500] [--seconds 60] [--rate 2]

A real control plane, nodes that are only objects, and a loop that plays their kubelets. Idle: nothing comes and nothing
goes. Busy: queued Jobs of one pod arrive at a rate, and end after some seconds; all work of the cluster is that. Needs
root (Kueue reads a certificate at a fixed place in /etc).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml
from tests.api_load.audit_counts import POLICY, AuditCounts
from tests.api_load.counting_proxy import CountingProxy
from tests.live.replica import Replica
from tests.live.scenes import GPU
from tests.live.test_live_queues import job, queues
from tests.real_cluster.api import Api, ApiError, until
from tests.real_cluster.binaries import Binaries
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.kueue import install_kueue, kueue_controller
from tests.real_cluster.service import free_ports

RUN_SECONDS = 10.0
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60, help="of each phase")
    parser.add_argument("--rate", type=float, default=2, help="Jobs a second")
    parser.add_argument("--api-qps", type=float, help="of windlass, to see that it keeps to it")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="api-load-"))
    with cluster_of(folder, options.nodes) as (plane, counts):
        print(f"{options.nodes} nodes, {options.rate:g} Jobs a second while busy; per minute:\n")
        print("| role | | reads | writes | watches begun | KiB |\n| --- | --- | ---: | ---: | ---: | ---: |")
        for contender in (windlass, kueue_and_kube_scheduler):
            more = [f"--api-qps={options.api_qps:g}"] if options.api_qps is not None else []
            with contender(plane, folder, more) as proxies:
                measure(plane.api, counts, proxies, options.seconds, options.rate)
    return 0


@contextmanager
def cluster_of(folder: Path, nodes: int) -> Iterator[tuple[ControlPlane, AuditCounts]]:
    plane = ControlPlane(Binaries(), folder)
    policy, log = folder / "policy.yaml", folder / "audit.log"
    policy.write_text(yaml.safe_dump(POLICY))
    plane.apiserver.command += [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]
    plane.start()
    try:
        install_kueue(plane)
        plane.api.create(*queues(8 * nodes, cpu="1M", memory="1Pi"))
        plane.api.create(*(node(f"n{number:05}", {GPU: "8"}) for number in range(nodes)))
        with FakeKubelet(plane.api):
            yield plane, AuditCounts(log)
    finally:
        plane.stop()


@contextmanager
def windlass(plane: ControlPlane, folder: Path, more: Sequence[str]) -> Iterator[dict[str, CountingProxy]]:
    proxy = CountingProxy(plane.url)
    way_in = proxy.kubeconfig(plane.kubeconfig, folder / "windlass.kubeconfig")
    replica = Replica(way_in, folder / "windlass.log", *more)
    try:
        replica.wait_ready()
        until(lambda: replica.leads, 60, "it leads")
        yield {"windlass": proxy}
    finally:
        replica.stop()
        proxy.close()


@contextmanager
def kueue_and_kube_scheduler(
    plane: ControlPlane, folder: Path, more: Sequence[str]
) -> Iterator[dict[str, CountingProxy]]:
    """Kueue admits, kube-scheduler places: pods name kube-scheduler by Windlass's name, so that all Jobs are alike."""
    proxies = {"kueue": CountingProxy(plane.url), "kube-scheduler": CountingProxy(plane.url)}
    original = plane.kubeconfig
    with ExitStack() as stack:
        for proxy in proxies.values():
            stack.callback(proxy.close)
        plane.kubeconfig = proxies["kueue"].kubeconfig(original, folder / "kueue.kubeconfig")
        kueue = kueue_controller(plane, folder, *free_ports(1))
        plane.kubeconfig = proxies["kube-scheduler"].kubeconfig(original, folder / "kube-scheduler.kubeconfig")
        election = {"leaderElect": True, "resourceName": "kube-scheduler", "resourceNamespace": "kube-system"}
        profiles = {"profiles": [{"schedulerName": "windlass"}], "leaderElection": election}
        scheduler = plane.scheduler(profiles)
        plane.kubeconfig = original
        for part in (kueue, scheduler):
            part.start()
            stack.callback(part.stop)
        yield proxies


def measure(api: Api, counts: AuditCounts, proxies: dict[str, CountingProxy], seconds: float, rate: float) -> None:
    time.sleep(seconds / 4)  # what it asks for at its start
    for phase in ("idle", "busy"):
        before = {role: proxy.bytes for role, proxy in proxies.items()}
        counts.since_last()
        began = time.monotonic()
        if phase == "busy":
            submit(api, seconds, rate)
        else:
            time.sleep(seconds)
        minutes = (time.monotonic() - began) / 60
        found = counts.since_last()
        for role, proxy in proxies.items():
            numbers = [found[role, kind] / minutes for kind in ("reads", "writes", "watches")]
            numbers.append((proxy.bytes - before[role]) / 1024 / minutes)
            print(f"| {role} | {phase} | {' | '.join(f'{number:,.0f}' for number in numbers)} |", flush=True)
    for made in api.items(JOBS):
        api.delete(f"{JOBS}/{made['metadata']['name']}", propagationPolicy="Background")
    until(lambda: not api.items("/api/v1/pods"), 120, "the Jobs' pods are gone")


def submit(api: Api, seconds: float, rate: float) -> None:
    """Jobs at a rate; each runs for some seconds from its pod's binding."""
    stopped = threading.Event()
    threading.Thread(target=end_pods, args=(api, stopped), daemon=True).start()
    began = time.monotonic()
    for number in range(int(seconds * rate)):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        made = job(f"j{number:05}-{int(began)}", 1, 1)
        made["spec"]["backoffLimit"] = 0
        api.create(made)
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    stopped.set()


def end_pods(api: Api, stopped: threading.Event) -> None:
    seen: dict[str, float] = {}
    while not stopped.wait(0.5):
        for made in api.items("/api/v1/namespaces/default/pods"):
            name = made["metadata"]["name"]
            if made["status"].get("phase") == "Running":
                seen.setdefault(name, time.monotonic())
                if time.monotonic() - seen[name] > RUN_SECONDS:
                    try:
                        api.patch(f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"phase": "Succeeded"}})
                    except ApiError:
                        seen.pop(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
