"""The same steps on the embedded cluster and on a real one with kube-controller-manager have the same results."""

from __future__ import annotations

from typing import Any

from tests.embedded.controllers.stories import (
    APPS,
    BATCH,
    LABELS,
    POLICY,
    counts,
    events,
    job_story,
    plain,
    pods,
    pods_path,
    same,
    set_phase,
    shape,
    space,
    told,
    wait,
)
from tests.embedded.in_process_cluster import template
from tests.embedded.server.harness import Client

from windlass.model.unstructured import Unstructured


def test_a_job_that_ends_well(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        spec = {
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "template": template(LABELS, "Never"),
        }
        path = f"{BATCH}{space()}/jobs"
        client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
        wait(lambda: len(pods(client)) == 2)
        wait(lambda: client.get(f"{path}/story").ok().get("status", {}).get("active") == 2)
        started = client.get(f"{path}/story").ok()
        shapes = [shape(pod) for pod in pods(client)]
        for pod in pods(client):
            set_phase(client, pod, "Succeeded")
        wait(lambda: any(condition[0] == "Complete" for condition in told(client.get(f"{path}/story").ok())))
        ended = client.get(f"{path}/story").ok()
        wait(lambda: any(event[1] == "Completed" for event in events(client, "Job")))
        return (
            shapes,
            counts(started),
            counts(ended),
            told(ended),
            events(client, "Job"),
            sorted(ended["status"]),
        )

    same(both, story)


def test_a_job_that_fails(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        spec = {"backoffLimit": 0, "parallelism": 2, "completions": 2, "template": template(LABELS, "Never")}
        path = f"{BATCH}{space()}/jobs"
        client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
        wait(lambda: len(pods(client)) == 2)
        set_phase(client, pods(client)[0], "Failed", 1)
        wait(lambda: any(condition[0] == "Failed" for condition in told(client.get(f"{path}/story").ok())))
        ended = client.get(f"{path}/story").ok()
        wait(lambda: any(event[1] == "BackoffLimitExceeded" for event in events(client, "Job")))
        return counts(ended), told(ended), events(client, "Job"), len(pods(client))

    same(both, story)


def test_a_job_that_is_suspended_and_resumed(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        path = f"{BATCH}{space()}/jobs"
        client.post(path, {"metadata": {"name": "story"}, "spec": {"template": template(LABELS, "Never")}}).ok()
        wait(lambda: len(pods(client)) == 1)
        client.patch(f"{path}/story", {"spec": {"suspend": True}}).ok()
        wait(lambda: not pods(client))
        wait(lambda: told(client.get(f"{path}/story").ok()))
        suspended = told(client.get(f"{path}/story").ok())
        fields = sorted(client.get(f"{path}/story").ok()["status"])
        client.patch(f"{path}/story", {"spec": {"suspend": False}}).ok()
        wait(lambda: len(pods(client)) == 1)
        wait(lambda: told(client.get(f"{path}/story").ok()) != suspended)
        wait(lambda: any(event[1] == "Resumed" for event in events(client, "Job")))
        return suspended, fields, told(client.get(f"{path}/story").ok()), events(client, "Job")

    same(both, story)


def test_a_deployment_and_its_rollout(both: tuple[Client, Client]) -> None:
    def settle(client: Client, image: str) -> Unstructured:
        def done() -> Unstructured | None:
            for pod in pods(client):
                if pod["status"]["phase"] == "Pending":
                    set_phase(client, pod, "Running")
            found = client.get(f"{APPS}{space()}/deployments/story").ok()
            status = found.get("status", {})
            full = status.get("updatedReplicas") == status.get("availableReplicas") == status.get("replicas") == 2
            fresh = status.get("observedGeneration") == found["metadata"]["generation"]
            right = all(pod["spec"]["containers"][0]["image"] == image for pod in pods(client))
            rolled = any(condition[2] == "NewReplicaSetAvailable" for condition in told(found))
            return found if full and fresh and right and rolled else None

        return dict(wait(done))

    def story(client: Client) -> Any:
        path = f"{APPS}{space()}/deployments"
        spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template(LABELS)}
        client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
        first = settle(client, "train")
        shapes = [shape(pod) for pod in pods(client)]
        containers = [{"name": "main", "image": "new"}]
        client.patch(f"{path}/story", {"spec": {"template": {"spec": {"containers": containers}}}}).ok()
        second = settle(client, "new")
        sets = client.get(f"{APPS}{space()}/replicasets").ok()["items"]
        wait(lambda: any("from 1 to 0" in event[2] for event in events(client, "Deployment")))
        return (
            shapes,
            [
                (counts(item, "terminatingReplicas"), told(item), item["metadata"]["annotations"])
                for item in (first, second)
            ],
            first["metadata"]["generation"],
            sorted(
                (
                    replica_set["spec"]["replicas"],
                    sorted(replica_set["metadata"]["annotations"].items()),
                    plain(replica_set["metadata"]["name"]),
                )
                for replica_set in sets
            ),
            events(client, "Deployment"),
        )

    same(both, story)


def test_a_statefulset_s_first_pod(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        path = f"{APPS}{space()}/statefulsets"
        spec = {
            "replicas": 2,
            "serviceName": "db",
            "selector": {"matchLabels": LABELS},
            "template": template(LABELS),
        }
        client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
        wait(lambda: len(pods(client)) == 1)
        first = shape(pods(client)[0])
        set_phase(client, pods(client)[0], "Running")
        wait(lambda: len(pods(client)) == 2)
        set_phase(client, pods(client)[1], "Running")
        wait(lambda: client.get(f"{path}/story").ok()["status"].get("readyReplicas") == 2)
        wait(lambda: client.get(f"{path}/story").ok()["status"].get("availableReplicas") == 2)
        status = counts(client.get(f"{path}/story").ok(), "currentRevision", "updateRevision")
        revisions = client.get(f"{APPS}{space()}/controllerrevisions").ok()["items"]
        history = [(revision["revision"], sorted(revision["data"]["spec"]["template"])) for revision in revisions]
        return first, status, history, {event[:2] for event in events(client, "StatefulSet")}

    same(both, story)


def test_a_daemonset_s_pod(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        client.post("/api/v1/nodes", {"metadata": {"name": "story-node"}}).ok()
        path = f"{APPS}{space()}/daemonsets"
        spec = {"selector": {"matchLabels": LABELS}, "template": template(LABELS)}
        client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
        wait(lambda: len(pods(client)) == 1)
        wait(lambda: client.get(f"{path}/story").ok()["status"].get("currentNumberScheduled") == 1)
        return shape(pods(client)[0]), counts(client.get(f"{path}/story").ok())

    same(both, story)


def test_a_budget(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        spec = {"replicas": 3, "selector": {"matchLabels": LABELS}, "template": template(LABELS)}
        client.post(f"{APPS}{space()}/replicasets", {"metadata": {"name": "story"}, "spec": spec}).ok()
        path = f"{POLICY}{space()}/poddisruptionbudgets"
        budget = {"selector": {"matchLabels": LABELS}, "maxUnavailable": "34%"}
        client.post(path, {"metadata": {"name": "story"}, "spec": budget}).ok()
        wait(lambda: len(pods(client)) == 3)
        for pod in pods(client):
            set_phase(client, pod, "Running")
        wait(lambda: client.get(f"{path}/story").ok().get("status", {}).get("currentHealthy") == 3)
        found = client.get(f"{path}/story").ok()
        return counts(found), told(found)

    same(both, story)


def test_a_job_past_its_deadline(both: tuple[Client, Client]) -> None:
    spec = {"activeDeadlineSeconds": 1, "template": template(LABELS, "Never")}
    # Its pods may be gone before anybody has looked: they come, and a second later they go.
    same(both, job_story(spec, None, "Failed"))


def test_a_job_that_a_rule_fails(both: tuple[Client, Client]) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    spec = {"podFailurePolicy": {"rules": [rule]}, "template": template(LABELS, "Never")}
    same(both, job_story(spec, lambda client: set_phase(client, pods(client)[0], "Failed", 42), "Failed"))


def test_a_job_that_needs_one_success(both: tuple[Client, Client]) -> None:
    spec = {"parallelism": 1, "completions": None, "template": template(LABELS, "Never")}
    same(both, job_story(spec, lambda client: set_phase(client, pods(client)[0], "Succeeded"), "Complete"))


def test_a_deployment_that_makes_no_progress(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        path = f"{APPS}{space()}/deployments"
        spec = {
            "replicas": 1,
            "progressDeadlineSeconds": 2,
            "selector": {"matchLabels": LABELS},
            "template": template(LABELS),
        }
        client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
        wait(
            lambda: any("ProgressDeadlineExceeded" in condition for condition in told(client.get(f"{path}/story").ok()))
        )
        found = client.get(f"{path}/story").ok()
        client.patch(f"{path}/story", {"spec": {"paused": True}}).ok()
        wait(lambda: _is_seen(client.get(f"{path}/story").ok()))
        return counts(found, "terminatingReplicas"), told(found), told(client.get(f"{path}/story").ok())

    same(both, story)


def _is_seen(obj: Unstructured) -> bool:
    return bool(obj["status"].get("observedGeneration") == obj["metadata"]["generation"])


def test_a_replicaset_lets_go_and_takes_in(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template(LABELS)}
        path = f"{APPS}{space()}/replicasets"
        client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
        wait(lambda: len(pods(client)) == 2)
        odd = pods(client)[0]["metadata"]["name"]
        client.patch(f"{pods_path()}/{odd}", {"metadata": {"labels": {"app": "odd"}}}).ok()
        wait(lambda: len(pods(client)) == 2)
        wait(lambda: "ownerReferences" not in client.get(f"{pods_path()}/{odd}").ok()["metadata"])
        client.patch(path + "/story", {"spec": {"replicas": 3}}).ok()
        wait(lambda: len(pods(client)) == 3)
        client.delete(path + "/story", propagationPolicy="Orphan").ok()
        wait(lambda: client.get(path + "/story").code == 404)
        wait(lambda: all("ownerReferences" not in pod["metadata"] for pod in pods(client)))
        client.post(path, {"metadata": {"name": "story"}, "spec": {**spec, "replicas": 3}}).ok()
        wait(lambda: all("ownerReferences" in pod["metadata"] for pod in pods(client)))
        wait(lambda: client.get(path + "/story").ok().get("status", {}).get("replicas") == 3)
        adopted = [shape(pod)["owners"] for pod in pods(client)]
        return adopted, counts(client.get(path + "/story").ok(), "terminatingReplicas")

    same(both, story)


def test_a_statefulset_s_update(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        path = f"{APPS}{space()}/statefulsets"
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        spec = {
            "replicas": 2,
            "serviceName": "db",
            "podManagementPolicy": "Parallel",
            "updateStrategy": rolling,
            "selector": {"matchLabels": LABELS},
            "template": template(LABELS),
        }
        client.post(path, {"metadata": {"name": "story"}, "spec": spec}).ok()
        wait(lambda: len(pods(client)) == 2)
        for pod in pods(client):
            set_phase(client, pod, "Running")
        wait(lambda: client.get(f"{path}/story").ok()["status"].get("availableReplicas") == 2)
        containers = [{"name": "main", "image": "new"}]
        client.patch(f"{path}/story", {"spec": {"template": {"spec": {"containers": containers}}}}).ok()

        def updated() -> bool:
            found = [pod for pod in pods(client) if pod["spec"]["containers"][0]["image"] == "new"]
            for pod in found:
                if pod["status"]["phase"] == "Pending":
                    set_phase(client, pod, "Running")
            status = client.get(f"{path}/story").ok()["status"]
            return len(found) == 1 and status.get("updatedReplicas") == 1 and status.get("availableReplicas") == 2

        wait(updated)
        found = client.get(f"{path}/story").ok()
        moved = found["status"]["currentRevision"] != found["status"]["updateRevision"]
        images = [pod["spec"]["containers"][0]["image"] for pod in pods(client)]
        return images, moved, counts(found, "currentRevision", "updateRevision")

    same(both, story)


def test_a_quota_s_status(both: tuple[Client, Client]) -> None:
    def story(client: Client) -> Any:
        path = f"/api/v1{space()}/resourcequotas"
        hard = {"pods": "3", "requests.cpu": "4", "count/jobs.batch": "2", "requests.nvidia.com/gpu": "8"}
        client.post(path, {"metadata": {"name": "story"}, "spec": {"hard": hard}}).ok()
        wait(lambda: client.get(f"{path}/story").ok().get("status", {}).get("used"))
        limits = {
            "requests": {"cpu": "1500m", "nvidia.com/gpu": "2"},
            "limits": {"cpu": "2", "nvidia.com/gpu": "2"},
        }
        box = {"name": "main", "image": "train", "resources": limits}
        pod = {"metadata": {"name": "story", "labels": LABELS}, "spec": {"containers": [box]}}
        wait(lambda: client.get(f"/api/v1{space()}/serviceaccounts/default").code == 200)
        client.post(pods_path(), pod).ok()
        wait(lambda: client.get(f"{path}/story").ok()["status"]["used"].get("pods") == "1")
        used = client.get(f"{path}/story").ok()["status"]
        client.delete(f"{pods_path()}/story", gracePeriodSeconds=0).ok()
        wait(lambda: client.get(f"{path}/story").ok()["status"]["used"].get("pods") == "0")
        return used, client.get(f"{path}/story").ok()["status"]

    same(both, story)
