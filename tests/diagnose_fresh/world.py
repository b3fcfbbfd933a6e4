"""Small clusters as plain Kubernetes objects: what the cases are made of (see cases.py)."""

# ruff: noqa: E731
from __future__ import annotations

import datetime
import json
import pathlib
import uuid
from typing import Any

NOW = datetime.datetime(2026, 3, 10, 10, 0, 0)
Obj = dict[str, Any]

API = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
    "RayCluster": "ray.io/v1",
    "ClusterPolicy": "nvidia.com/v1",
    "VolcanoJob": "batch.volcano.sh/v1alpha1",
    "PersistentVolumeClaim": "v1",
    "Workload": "kueue.x-k8s.io/v1beta1",
    "NodePool": "karpenter.sh/v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "Node": "v1",
    "Pod": "v1",
    "PodGroup": "scheduling.volcano.sh/v1beta1",
    "Notebook": "kubeflow.org/v1",
    "PyTorchJob": "kubeflow.org/v1",
    "InferenceService": "serving.kserve.io/v1beta1",
}


def ts(minutes: float = 0) -> str:
    """The time so many minutes before the dump was taken."""
    return (NOW - datetime.timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def days(n: float) -> float:
    return n * 24 * 60


def uid(*parts: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(parts)))


class World:
    def __init__(self, version: str = "v1.31.4") -> None:
        self.items: list[Obj] = []
        self.files: dict[str, str] = {}
        self.version = version
        self.namespace("kube-system")

    # -- generic
    def add(
        self,
        api: str,
        kind: str,
        name: str,
        ns: str = "",
        age: float = days(20),
        labels: Obj | None = None,
        annotations: Obj | None = None,
        owner: tuple[str, str] | None = None,
        **body: Any,
    ) -> Obj:
        meta: Obj = {"name": name, "uid": uid(kind, ns, name), "creationTimestamp": ts(age)}
        if ns:
            self.namespace(ns)
            meta["namespace"] = ns
        if labels:
            meta["labels"] = dict(labels)
        if annotations:
            meta["annotations"] = dict(annotations)
        if owner:
            meta["ownerReferences"] = [
                {
                    "apiVersion": API[owner[0]],
                    "kind": owner[0].replace("VolcanoJob", "Job"),
                    "name": owner[1],
                    "uid": uid(owner[0], ns, owner[1]),
                    "controller": True,
                }
            ]
        o = {"apiVersion": api, "kind": kind, "metadata": meta, **body}
        self.items.append(o)
        return o

    def namespace(self, name: str, labels: Obj | None = None) -> None:
        for o in self.items:
            if o["kind"] == "Namespace" and o["metadata"]["name"] == name:
                o["metadata"]["labels"].update(labels or {})
                return
        self.items.append(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "creationTimestamp": ts(days(60)),
                    "labels": {"kubernetes.io/metadata.name": name, **(labels or {})},
                },
            }
        )

    def log(self, ns: str, pod: str, container: str, text: str) -> None:
        self.files[f"logs/{ns}_{pod}_{container}.log"] = text.strip("\n") + "\n"

    def host(self, node: str, what: str, text: str) -> None:
        self.files[f"hosts/{node}/{what}.log"] = text.strip("\n") + "\n"

    # -- nodes
    def node(
        self,
        name: str,
        cpu: str = "32",
        mem: str = "125Gi",
        gpu: int | None = None,
        res: Obj | None = None,
        alloc: Obj | None = None,
        labels: Obj | None = None,
        taints: list[Obj] | None = None,
        product: str = "",
        age: float = days(40),
        ready: str = "True",
        ready_reason: str = "KubeletReady",
        ready_message: str = "kubelet is posting ready status",
        pressure: str = "",
        unschedulable: bool = False,
        annotations: Obj | None = None,
        kernel: str = "6.8.0-55-generic",
        os: str = "Ubuntu 22.04.5 LTS",
        pods: str = "110",
        disk: str = "480Gi",
    ) -> Obj:
        cap: Obj = {"cpu": cpu, "memory": mem, "ephemeral-storage": disk, "pods": pods}
        if gpu is not None:
            cap["nvidia.com/gpu"] = str(gpu)
        cap.update(res or {})
        lab = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            **(labels or {}),
        }
        if product:
            lab |= {
                "nvidia.com/gpu.product": product,
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.count": str(gpu or 1),
                "feature.node.kubernetes.io/pci-10de.present": "true",
            }
        conds = []
        for kind, bad in (("MemoryPressure", "Memory"), ("DiskPressure", "Disk"), ("PIDPressure", "PID")):
            on = pressure == kind
            if not on and kind != "DiskPressure":
                continue
            conds.append(
                {
                    "type": kind,
                    "status": "True" if on else "False",
                    "reason": f"KubeletHas{kind}" if on else f"KubeletHasSufficient{bad}",
                    "message": f"kubelet has {bad.lower()} pressure" if on else "enough",
                    "lastTransitionTime": ts(34 if on else age),
                }
            )
        conds.append(
            {
                "type": "Ready",
                "status": ready,
                "reason": ready_reason,
                "message": ready_message,
                "lastTransitionTime": ts(age if ready == "True" else 47),
                "lastHeartbeatTime": ts(1),
            }
        )
        spec: Obj = {}
        if taints:
            spec["taints"] = taints
        if unschedulable:
            spec["unschedulable"] = True
        return self.add(
            "v1",
            "Node",
            name,
            age=age,
            labels=lab,
            annotations=annotations,
            spec=spec,
            status={
                "capacity": cap,
                "allocatable": {**cap, **(alloc or {})},
                "conditions": conds,
                "nodeInfo": {
                    "kubeletVersion": self.version,
                    "kernelVersion": kernel,
                    "osImage": os,
                    "containerRuntimeVersion": "containerd://1.7.24",
                    "bootID": uid("boot", name),
                },
            },
        )

    # -- pods
    def pod(
        self,
        ns: str,
        name: str,
        node: str = "",
        gpu: int | str = 0,
        cpu: str = "1",
        mem: str = "2Gi",
        image: str = "registry.lab/app:1",
        owner: tuple[str, str] | None = None,
        state: str = "running",
        age: float = 120,
        container: str = "main",
        labels: Obj | None = None,
        annotations: Obj | None = None,
        res: Obj | None = None,
        message: str = "",
        reason: str = "",
        exit_code: int = 1,
        restarts: int = 0,
        limits: Obj | None = None,
        since: float | None = None,
        spec: Obj | None = None,
        cspec: Obj | None = None,
        init: list[Obj] | None = None,
        init_status: list[Obj] | None = None,
        status: Obj | None = None,
    ) -> Obj:
        if owner and image == "registry.lab/app:1":  # as the owner's template says
            for o in self.items:
                if (o["kind"], o["metadata"]["name"], o["metadata"].get("namespace")) == (
                    *owner,
                    ns,
                ) and "template" in o["spec"]:
                    image = o["spec"]["template"]["spec"]["containers"][0]["image"]
        want = {"cpu": cpu, "memory": mem}
        lim: Obj = dict(limits or {})
        if gpu:
            lim["nvidia.com/gpu"] = str(gpu)
        lim.update(res or {})
        want.update({k: v for k, v in lim.items() if "/" in k})
        want.update(dict((res or {}).items()))
        c: Obj = {
            "name": container,
            "image": image,
            "resources": {"requests": want, **({"limits": lim} if lim else {})},
            **(cspec or {}),
        }
        sp: Obj = {"containers": [c], "restartPolicy": "Always", "schedulerName": "default-scheduler", "priority": 0}
        sp.update(spec or {})
        if init:
            sp["initContainers"] = init
        if node:
            sp["nodeName"] = node
        since = age - 1 if since is None else since
        yes = lambda kind, at: {"type": kind, "status": "True", "lastTransitionTime": ts(at)}
        no = lambda kind, at, **kw: {"type": kind, "status": "False", "lastTransitionTime": ts(at), **kw}
        st: Obj = {"phase": "Running"}
        cs: Obj = {"name": container, "restartCount": restarts, "ready": False, "started": False}
        if state == "unschedulable":
            st |= {"phase": "Pending", "conditions": [no("PodScheduled", age, reason="Unschedulable", message=message)]}
        elif state == "gated":
            st |= {
                "phase": "Pending",
                "conditions": [
                    no(
                        "PodScheduled",
                        age,
                        reason="SchedulingGated",
                        message="Scheduling is blocked due to non-empty scheduling gates",
                    )
                ],
            }
        elif state == "unseen":
            st |= {"phase": "Pending"}
        else:
            st["startTime"] = ts(age)
            ready = state in ("running",)
            st["conditions"] = [yes("PodScheduled", age), (yes if ready else no)("Ready", since)]
            if init_status and not ready:
                st["conditions"].insert(1, no("Initialized", age, reason="ContainersNotInitialized"))
            if state == "running":
                cs |= {"ready": True, "started": True, "state": {"running": {"startedAt": ts(since)}}}
                if restarts and exit_code:
                    cs["lastState"] = {
                        "terminated": {
                            "exitCode": exit_code,
                            "reason": reason or "Error",
                            "finishedAt": ts(since),
                            "startedAt": ts(age),
                        }
                    }
            elif state == "unready":
                cs |= {"started": True, "state": {"running": {"startedAt": ts(since)}}}
            elif state == "waiting":
                st["phase"] = "Pending"
                cs["state"] = {"waiting": {"reason": reason, "message": message}}
            elif state == "creating":
                st["phase"] = "Pending"
                cs["state"] = {"waiting": {"reason": "ContainerCreating"}}
            elif state == "init":
                st["phase"] = "Pending"
                cs["state"] = {"waiting": {"reason": "PodInitializing"}}
            elif state == "crash":
                cs["state"] = {
                    "waiting": {
                        "reason": "CrashLoopBackOff",
                        "message": f"back-off 5m0s restarting failed container={container} pod={name}_{ns}",
                    }
                }
                cs["lastState"] = {
                    "terminated": {
                        "exitCode": exit_code,
                        "reason": reason or "Error",
                        "startedAt": ts(4),
                        "finishedAt": ts(3),
                        **({"message": message} if message else {}),
                    }
                }
            elif state == "succeeded":
                st["phase"] = "Succeeded"
                cs["state"] = {
                    "terminated": {"exitCode": 0, "reason": "Completed", "startedAt": ts(age), "finishedAt": ts(since)}
                }
            elif state == "failed":
                st["phase"] = "Failed"
                cs["state"] = {
                    "terminated": {
                        "exitCode": exit_code,
                        "reason": reason or "Error",
                        "startedAt": ts(age),
                        "finishedAt": ts(since),
                        **({"message": message} if message else {}),
                    }
                }
            elif state == "rejected":
                st |= {"phase": "Failed", "reason": reason, "message": message}
                st.pop("conditions")
            if state != "rejected":
                st["containerStatuses"] = [cs]
            if init_status:
                st["initContainerStatuses"] = init_status
        st.update(status or {})
        return self.add(
            "v1", "Pod", name, ns, age=age, labels=labels, annotations=annotations, owner=owner, spec=sp, status=st
        )

    def event(
        self,
        ns: str,
        kind: str,
        name: str,
        reason: str,
        message: str,
        last: float = 2,
        first: float | None = None,
        count: int = 1,
        type: str = "Warning",
        source: str = "default-scheduler",
        api: str | None = None,
    ) -> None:
        first = last + 20 if first is None else first
        space = ns or "default"
        e = self.add(
            "v1",
            "Event",
            f"{name}.{uid(reason, message, str(last))[:13].replace('-', '')}",
            space,
            age=first,
            type=type,
            reason=reason,
            message=message,
            count=count,
            firstTimestamp=ts(first),
            lastTimestamp=ts(last),
            source={"component": source},
            involvedObject={
                "apiVersion": api or API.get(kind, "v1"),
                "kind": kind,
                "name": name,
                "uid": uid(kind, ns, name),
                **({"namespace": ns} if ns else {}),
            },
        )
        del e["metadata"]["uid"]

    def pending(
        self,
        ns: str,
        name: str,
        message: str,
        age: float = 40,
        count: int = 14,
        source: str = "default-scheduler",
        **kw: Any,
    ) -> Obj:
        o = self.pod(ns, name, state="unschedulable", message=message, age=age, **kw)
        self.event(ns, "Pod", name, "FailedScheduling", message, last=1, first=age, count=count, source=source)
        return o

    def deploy(
        self,
        ns: str,
        name: str,
        replicas: int,
        ready: int,
        hash: str,
        template: Obj,
        age: float = days(3),
        strategy: Obj | None = None,
        conditions: list[Obj] | None = None,
        rs_conditions: list[Obj] | None = None,
        updated: int | None = None,
        current: int | None = None,
    ) -> str:
        """A Deployment with its ReplicaSet; returns the ReplicaSet's name."""
        match = {"app": name}
        self.add(
            "apps/v1",
            "Deployment",
            name,
            ns,
            age=age,
            labels=match,
            spec={
                "replicas": replicas,
                "selector": {"matchLabels": match},
                "template": {"metadata": {"labels": match}, "spec": template},
                "strategy": strategy
                or {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            },
            status={
                "replicas": replicas if current is None else current,
                "readyReplicas": ready,
                "availableReplicas": ready,
                "updatedReplicas": replicas if updated is None else updated,
                "unavailableReplicas": max(0, replicas - ready),
                "conditions": conditions or [],
            },
        )
        rs = f"{name}-{hash}"
        self.rs(ns, name, hash, replicas, ready, template, age, rs_conditions, current)
        return rs

    def rs(
        self,
        ns: str,
        name: str,
        hash: str,
        replicas: int,
        ready: int,
        template: Obj,
        age: float,
        conditions: list[Obj] | None = None,
        current: int | None = None,
    ) -> str:
        match = {"app": name, "pod-template-hash": hash}
        self.add(
            "apps/v1",
            "ReplicaSet",
            f"{name}-{hash}",
            ns,
            age=age,
            labels=match,
            owner=("Deployment", name),
            spec={
                "replicas": replicas,
                "selector": {"matchLabels": match},
                "template": {"metadata": {"labels": match}, "spec": template},
            },
            status={
                "replicas": replicas if current is None else current,
                "readyReplicas": ready,
                "availableReplicas": ready,
                "conditions": conditions or [],
            },
        )
        return f"{name}-{hash}"

    def ds(
        self,
        ns: str,
        name: str,
        desired: int,
        ready: int,
        image: str,
        container: str,
        selector: Obj | None = None,
        tolerations: list[Obj] | None = None,
        current: int | None = None,
        age: float = days(30),
        spec: Obj | None = None,
    ) -> None:
        self.add(
            "apps/v1",
            "DaemonSet",
            name,
            ns,
            age=age,
            labels={"app": name},
            spec={
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {
                        "containers": [{"name": container, "image": image}],
                        "nodeSelector": selector or {},
                        "tolerations": tolerations or [],
                        **(spec or {}),
                    },
                },
            },
            status={
                "desiredNumberScheduled": desired,
                "currentNumberScheduled": desired if current is None else current,
                "numberReady": ready,
                "numberAvailable": ready,
                "numberUnavailable": desired - ready,
                "numberMisscheduled": 0,
            },
        )

    # -- transformations
    def renamed(self, pairs: list[tuple[str, str]]) -> World:
        text = json.dumps({"items": self.items, "files": self.files})
        for old, new in pairs:
            text = text.replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1])
        w = World.__new__(World)
        d = json.loads(text)
        w.items, w.files, w.version = d["items"], d["files"], self.version
        return w

    def write(self, folder: pathlib.Path, expected: Obj) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "objects.json").write_text(
            '{"apiVersion":"v1","kind":"List","items":[\n'
            + ",\n".join(json.dumps(o, separators=(",", ":")) for o in self.items)
            + "\n]}\n"
        )
        (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        for path, text in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
