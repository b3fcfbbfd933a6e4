"""Paths without stored objects: version, health, metrics, reviews, tokens, and kinds that are added and removed."""

from __future__ import annotations

from pathlib import Path

from tests.embedded.server.harness import Client, Served

from windlass.model.unstructured import Unstructured

AUTH, RIGHTS = "/apis/authentication.k8s.io/v1", "/apis/authorization.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


def test_version(either: Client) -> None:
    told = either.get("/version").ok()
    assert told["major"] == "1"
    assert told["gitVersion"].startswith("v1.")


def test_health(either: Client) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        answer = either.get(path)
        assert (answer.code, answer.data) == (200, b"ok")
    assert b"readyz check passed" in either.get("/readyz", verbose="").data


def test_a_disk_that_is_full_is_not_ready(tmp_path: Path) -> None:
    served = Served(tmp_path).start()
    try:
        served.call(lambda: served.server.registry.store.on_journal_failed("No space left on device"))
        answer = served.client.get("/readyz")
        assert answer.code == 500
        assert b"[-]store failed: No space left on device" in answer.data
        assert served.client.get("/healthz").code == 500
        assert served.client.get("/livez").code == 200
    finally:
        served.stop()


def test_metrics(client: Client) -> None:
    assert b'apiserver_storage_objects{resource="namespaces"} ' in client.get("/metrics").data


def test_paths_that_lead_nowhere(either: Client) -> None:
    for path in (
        "/nothing",
        "/apis/nothing.example/v1",
        "/api/v2",
        "/api/v1/nothings",
        "/openapi/v3/apis/none/v1",
    ):
        assert either.get(path).code == 404
    answer = either.post("/version", {})
    assert (answer.code, answer.json["reason"]) == (405, "MethodNotAllowed")


def test_discovery_is_not_sent_twice(client: Client) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    first = client.send("GET", "/apis", headers={"Accept": accept})
    assert first.json["kind"] == "APIGroupDiscoveryList"
    again = client.send("GET", "/apis", headers={"Accept": accept, "If-None-Match": first.headers["Etag"]})
    assert (again.code, again.data) == (304, b"")


def test_who_am_i(either: Client) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = either.post(f"{AUTH}/selfsubjectreviews", body)
    assert answer.code == 201
    assert "system:masters" in answer.json["status"]["userInfo"]["groups"]


def test_what_may_i_do(either: Client) -> None:
    spec = {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "default"}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    assert either.post(f"{RIGHTS}/selfsubjectaccessreviews", body).ok()["status"]["allowed"] is True
    answer = either.post(f"{RIGHTS}/selfsubjectaccessreviews", {**body, "spec": {}})
    assert answer.code == 422
    assert "exactly one of nonResourceAttributes or resourceAttributes" in answer.message
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"},
    }
    rules = either.post(f"{RIGHTS}/selfsubjectrulesreviews", body).ok()["status"]["resourceRules"]
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in rules


def test_a_token_of_an_account_opens_the_door(served: Served) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600},
    }
    answer = served.client.post(path, body)
    assert answer.code == 201
    guest = Client(served.kubeconfig, answer.json["status"]["token"])
    told = guest.post(f"{AUTH}/selfsubjectreviews", {}).ok()["status"]["userInfo"]
    assert told["username"] == "system:serviceaccount:default:default"
    answer = served.client.post(path, {**body, "spec": {"expirationSeconds": 5}})
    assert answer.code == 422
    assert "may not specify a duration less than 10 minutes" in answer.message
    assert served.client.post(path.replace("/default/token", "/nobody/token"), body).code == 404


def definition() -> Unstructured:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version["subresources"] = {"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}}
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def widget(name: str, **metadata: object) -> Unstructured:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": {},
    }


def test_a_custom_kind_comes_and_goes_with_its_objects(client: Client) -> None:
    assert client.get(WIDGETS).code == 404
    client.post(CRDS, definition()).ok()
    made = client.post(WIDGETS, widget("one")).ok()
    assert made["spec"] == {"size": 3}
    client.post(WIDGETS, widget("held", finalizers=["example.com/hold"])).ok()
    assert client.patch(f"{WIDGETS}/one/scale", {"spec": {"replicas": 5}}).ok()["spec"]["replicas"] == 5
    assert client.get(f"{WIDGETS}/one").ok()["spec"]["size"] == 5
    answer = client.put(f"{WIDGETS}/one", widget("one"))
    assert answer.code == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in answer.message
    assert client.patch(f"{WIDGETS}/one", {}, "application/strategic-merge-patch+json").code == 415
    client.delete(f"{CRDS}/widgets.example.com").ok()
    assert client.get(f"{CRDS}/widgets.example.com").ok()["metadata"]["deletionTimestamp"]
    assert client.get(f"{WIDGETS}/one").code == 404
    client.patch(f"{WIDGETS}/held", {"metadata": {"finalizers": None}}).ok()
    assert client.get(f"{CRDS}/widgets.example.com").code == 404
    assert client.get(WIDGETS).code == 404


def test_a_custom_kind_of_two_versions_is_read_in_either(client: Client) -> None:
    made = definition()
    made["metadata"]["name"] = "gadgets.example.com"
    made["spec"]["names"] = {
        "plural": "gadgets",
        "singular": "gadget",
        "kind": "Gadget",
        "listKind": "GadgetList",
    }
    (version,) = made["spec"]["versions"]
    made["spec"]["versions"] = [version, {**version, "name": "v1beta1", "storage": False}]
    client.post(CRDS, made).ok()
    for name in ("v1", "v1beta1"):
        gadget = {"apiVersion": f"example.com/{name}", "kind": "Gadget", "metadata": {"name": name}}
        client.post(f"/apis/example.com/{name}/namespaces/default/gadgets", gadget).ok()
    for name in ("v1", "v1beta1"):
        path = f"/apis/example.com/{name}/namespaces/default/gadgets"
        page = client.get(path).ok()
        assert page["apiVersion"] == f"example.com/{name}"
        assert [item["apiVersion"] for item in page["items"]] == [f"example.com/{name}"] * 2
        assert [item["metadata"]["name"] for item in page["items"]] == ["v1", "v1beta1"]
        with client.watch(path) as events:
            assert {next(events)["object"]["apiVersion"] for _ in range(2)} == {f"example.com/{name}"}
    client.delete(f"{CRDS}/gadgets.example.com").ok()
    assert client.get(f"{CRDS}/gadgets.example.com").code == 404
