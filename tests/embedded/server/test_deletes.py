"""Deletions, on the embedded server and on a real one: grace, finalizers, preconditions, propagation, evictions."""

from __future__ import annotations

from typing import Any

from tests.embedded.server.harness import Client

from windlass.model.unstructured import Unstructured

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def config(name: str, **metadata: Any) -> Unstructured:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def pod(name: str, node: str = "", **metadata: Any) -> Unstructured:
    spec: Unstructured = {"containers": [{"name": "main", "image": "train"}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def test_a_deletion_is_answered_with_a_status(either: Client) -> None:
    made = either.post(MAPS, config("plain")).ok()
    answer = either.delete(f"{MAPS}/plain").ok()
    assert answer["kind"] == "Status"
    assert answer["status"] == "Success"
    assert answer["details"] == {"name": "plain", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    answer = either.delete(f"{MAPS}/plain")
    assert (answer.code, answer.message) == (404, 'configmaps "plain" not found')


def test_a_pod_that_runs_gets_its_grace(either: Client) -> None:
    either.post(PODS, pod("graceful", "n1")).ok()
    marked = either.delete(f"{PODS}/graceful").ok()
    assert marked["kind"] == "Pod"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["generation"] == 2
    again = either.delete(f"{PODS}/graceful").ok()
    assert again["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    shorter = either.delete(f"{PODS}/graceful", gracePeriodSeconds=5).ok()
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    longer = either.delete(f"{PODS}/graceful", gracePeriodSeconds=60).ok()
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 5
    either.delete(f"{PODS}/graceful", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}).ok()
    assert either.get(f"{PODS}/graceful").code == 404


def test_a_pod_without_a_node_goes_at_once(either: Client) -> None:
    either.post(PODS, pod("waiting")).ok()
    assert either.delete(f"{PODS}/waiting").ok()["kind"] == "Pod"
    assert either.get(f"{PODS}/waiting").code == 404


def test_finalizers_hold_an_object(either: Client) -> None:
    either.post(MAPS, config("held", finalizers=["example.com/hold", "example.com/more"])).ok()
    assert either.delete(f"{MAPS}/held").ok()["metadata"]["deletionTimestamp"]
    assert either.delete(f"{MAPS}/held").code == 200
    answer = either.patch(f"{MAPS}/held", {"metadata": {"finalizers": ["example.com/new"]}})
    assert answer.code == 422
    assert (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"
        in answer.message
    )
    either.patch(f"{MAPS}/held", {"metadata": {"finalizers": ["example.com/more"]}}).ok()
    assert either.get(f"{MAPS}/held").code == 200
    either.patch(f"{MAPS}/held", {"metadata": {"finalizers": None}}).ok()
    assert either.get(f"{MAPS}/held").code == 404


def test_preconditions(either: Client) -> None:
    made = either.post(MAPS, config("exact")).ok()["metadata"]

    def delete(**conditions: str) -> tuple[int, str]:
        answer = either.delete(
            f"{MAPS}/exact", {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
        )
        return answer.code, answer.message

    code, message = delete(uid="other")
    assert code == 409
    assert f"the UID in the precondition (other) does not match the UID in record ({made['uid']})" in message
    code, message = delete(resourceVersion="1")
    assert code == 409
    assert "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record" in message
    assert delete(uid=made["uid"], resourceVersion=made["resourceVersion"])[0] == 200


def test_propagation_is_written_as_a_finalizer(client: Client) -> None:
    """Alone, without a garbage collector that would take it off again at once."""
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        name = policy.lower()
        client.post(MAPS, config(name)).ok()
        marked = client.delete(f"{MAPS}/{name}", propagationPolicy=policy).ok()
        assert marked["metadata"]["finalizers"] == [finalizer]
        assert marked["metadata"]["deletionTimestamp"]
        client.patch(f"{MAPS}/{name}", {"metadata": {"finalizers": None}}).ok()
        assert client.get(f"{MAPS}/{name}").code == 404
    answer = client.delete(f"{MAPS}/nobody", propagationPolicy="Sideways")
    assert answer.code == 422
    assert 'propagationPolicy: Unsupported value: "Sideways"' in answer.message


def test_a_job_leaves_its_pods_unless_told_otherwise(either: Client) -> None:
    spec = {"template": {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}, "suspend": True}
    either.post(JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "left"}, "spec": spec}).ok()
    answer = either.delete(f"{JOBS}/left")
    assert answer.code == 200
    assert "child pods are preserved by default when jobs are deleted" in answer.headers["Warning"]


def test_many_at_once(either: Client) -> None:
    for number in range(4):
        either.post(MAPS, config(f"many-{number}", labels={"of": "many", "odd": str(number % 2)})).ok()
    answer = either.delete(MAPS, labelSelector="of=many,odd=1").ok()
    assert answer["kind"] == "ConfigMapList"
    left = either.get(MAPS, labelSelector="of=many").ok()["items"]
    assert [event["metadata"]["name"] for event in left] == ["many-0", "many-2"]


def test_default_namespaces_stay(either: Client) -> None:
    answer = either.delete("/api/v1/namespaces/default")
    assert answer.code == 403
    assert answer.message == 'namespaces "default" is forbidden: this namespace may not be deleted'


def test_nothing_is_made_in_a_namespace_that_goes(client: Client) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}}
    client.post("/api/v1/namespaces", space).ok()
    marked = client.delete("/api/v1/namespaces/going").ok()
    assert marked["status"]["phase"] == "Terminating"
    answer = client.post("/api/v1/namespaces/going/configmaps", config("late"))
    assert answer.code == 403
    assert "because it is being terminated" in answer.message
    assert answer.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    marked["spec"]["finalizers"] = []
    client.put("/api/v1/namespaces/going/finalize", marked).ok()
    assert client.get("/api/v1/namespaces/going").code == 404


def guarded(api: Client, name: str, allowed: int, healthy: int) -> None:
    """A running, ready pod, and a budget over it that allows so many disruptions."""
    api.post(PODS, pod(name, "n1", labels={"app": name})).ok()
    ready = {"type": "Ready", "status": "True"}
    api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": [ready]}}).ok()
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    made = api.post(
        BUDGETS,
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec},
    ).ok()
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": 1,
        "expectedPods": 1,
        "observedGeneration": made["metadata"]["generation"],
    }
    api.patch(f"{BUDGETS}/{name}/status", {"status": status}).ok()


def evict(api: Client, name: str) -> tuple[int, Unstructured]:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    answer = api.post(f"{PODS}/{name}/eviction", body)
    return answer.code, answer.json


def test_an_eviction_that_a_budget_allows(client: Client) -> None:
    guarded(client, "free", allowed=1, healthy=2)
    code, answer = evict(client, "free")
    assert (code, answer["status"]) == (201, "Success")
    marked = client.get(f"{PODS}/free").ok()
    assert marked["metadata"]["deletionTimestamp"]
    target = next(condition for condition in marked["status"]["conditions"] if condition["type"] == "DisruptionTarget")
    assert target["reason"] == "EvictionByEvictionAPI"
    status = client.get(f"{BUDGETS}/free").ok()["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["free"]


def test_an_eviction_that_a_budget_forbids(client: Client) -> None:
    guarded(client, "tight", allowed=0, healthy=1)
    before = client.get(f"{PODS}/tight").ok()
    code, answer = evict(client, "tight")
    assert (code, answer["reason"]) == (429, "TooManyRequests")
    assert answer["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget tight needs 1 healthy pods and has 1 currently",
    }
    assert answer["details"]["causes"] == [cause]
    assert client.get(f"{PODS}/tight").ok() == before


def test_an_eviction_without_a_budget(either: Client) -> None:
    either.post(PODS, pod("alone", "n1")).ok()
    assert evict(either, "alone")[0] == 201
    assert either.get(f"{PODS}/alone").ok()["metadata"]["deletionTimestamp"]
    assert evict(either, "nobody")[0] == 404
