"""RBAC: what roles and bindings allow, reviews of it, impersonation, grants, and tokens of service accounts.

Most of it holds for a real API server with the same assertions (`either`); random roles and requests are compared with
one, `WINDLASS_RBAC_TRIPLES=2000` for many.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.embedded.in_process_cluster import InProcessCluster
from tests.embedded.server.harness import Answer, Client, Served
from tests.real_cluster.api import until

from windlass.embedded.bootstrap_roles import bootstrap_roles
from windlass.model.unstructured import Unstructured

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1"
API_VERSION = "rbac.authorization.k8s.io/v1"
PODS, MAPS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
ROLES, BINDINGS = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"
TRIPLES = int(os.environ.get("WINDLASS_RBAC_TRIPLES", "200"))
_numbers = itertools.count()


def unique(name: str) -> str:
    return f"{name}-{next(_numbers)}-{os.getpid()}"


class As:
    """The client of a user, by impersonation; each user exists once, so that tests don't share rights."""

    def __init__(self, client: Client, user: str = "", groups: tuple[str, ...] = ()) -> None:
        self.client, self.user, self.groups = client, user or unique("user"), groups

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> Answer:
        headers = {"Impersonate-User": self.user}
        if self.groups:
            headers["Impersonate-Group"] = self.groups[0]
        return self.client.send(method, path, body, headers=headers, **query)

    def may(self, method: str, path: str, body: Any = None, **query: Any) -> bool:
        return self.send(method, path, body, **query).code != 403


def rule(verbs: str, resources: str, groups: str = "", **more: Any) -> Unstructured:
    names = {"verbs": verbs.split(), "resources": resources.split(), "apiGroups": groups.split() or [""]}
    return {**names, **more}


def grant(client: Client, user: str, *rules: Unstructured, cluster: bool = False) -> None:
    """A role and its binding, as the administrator makes them."""
    name, kind = unique("role"), "ClusterRole" if cluster else "Role"
    path = f"{RBAC}/clusterroles" if cluster else ROLES
    role = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "rules": list(rules)}
    client.post(path, role).ok()
    bind(client, user, kind, name, cluster)


def binding(user: str, kind: str, role: str, cluster: bool = False) -> Unstructured:
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
    made = {"apiVersion": API_VERSION, "kind": "ClusterRoleBinding" if cluster else "RoleBinding"}
    return {**made, "metadata": {"name": unique("binding")}, "subjects": [subject], "roleRef": reference}


def bind(client: Client, user: str, kind: str, role: str, cluster: bool = False) -> None:
    path = f"{RBAC}/clusterrolebindings" if cluster else BINDINGS
    client.post(path, binding(user, kind, role, cluster)).ok()


def settled(user: As, method: str, path: str, body: Any = None) -> None:
    """A real server hears of roles by a watch."""
    until(lambda: user.may(method, path, body), what=f"{method} {path} to be allowed")


class TestRules:
    def test_nothing_is_allowed_without_a_role_but_discovery(self, either: Client) -> None:
        user = As(either)
        answer = user.send("GET", PODS)
        assert answer.code == 403
        assert answer.message == (
            f'pods is forbidden: User "{user.user}" cannot list resource "pods" in API group "" in the namespace '
            '"default"'
        )
        answer = user.send("GET", "/api/v1/nodes/n1")
        assert answer.message == (
            f'nodes "n1" is forbidden: User "{user.user}" cannot get resource "nodes" in API group "" at the cluster '
            "scope"
        )
        assert user.send("GET", "/metrics").message == f'forbidden: User "{user.user}" cannot get path "/metrics"'
        for path in ("/api", "/apis", "/api/v1", "/version", "/openapi/v3"):
            assert user.send("GET", path).code == 200

    def test_verbs_resources_and_namespaces(self, either: Client) -> None:
        user = As(either)
        grant(either, user.user, rule("get list", "pods pods/log"))
        settled(user, "GET", PODS)
        assert user.may("GET", f"{PODS}/none")
        assert user.may("GET", f"{PODS}/none/log")
        assert not user.may("GET", f"{PODS}/none/status")
        assert not user.may("GET", PODS, watch="true", timeoutSeconds=1)
        assert not user.may("POST", PODS, {})
        assert not user.may("DELETE", PODS)
        assert not user.may("GET", MAPS)
        assert not user.may("GET", "/api/v1/pods")
        assert not user.may("GET", "/api/v1/namespaces/kube-system/pods")

    def test_names_wildcards_and_paths(self, either: Client) -> None:
        user = As(either)
        grant(either, user.user, rule("get list delete", "configmaps", resourceNames=["mine"]))
        grant(either, user.user, rule("*", "*/scale", "apps"), cluster=True)
        paths = {"verbs": ["get"], "nonResourceURLs": ["/metrics", "/logs/*"]}
        grant(either, user.user, paths, cluster=True)
        settled(user, "GET", f"{MAPS}/mine")
        settled(user, "GET", "/metrics")
        assert not user.may("GET", f"{MAPS}/other")
        assert user.may("GET", MAPS, fieldSelector="metadata.name=mine")
        assert not user.may("GET", MAPS)
        assert user.may("GET", "/apis/apps/v1/namespaces/default/deployments/none/scale")
        assert not user.may("GET", "/apis/apps/v1/namespaces/default/deployments/none")
        assert user.may("GET", "/logs/any")

    def test_a_cluster_role_in_one_namespace(self, either: Client) -> None:
        user = As(either)
        bind(either, user.user, "ClusterRole", "view")
        settled(user, "GET", PODS)
        assert not user.may("GET", "/api/v1/namespaces/kube-system/pods")
        assert not user.may("GET", "/api/v1/namespaces/default/secrets")
        assert not user.may("POST", MAPS, {})

    def test_groups_and_masters(self, either: Client) -> None:
        team = unique("team")
        body = binding("nobody", "ClusterRole", "view")
        body["subjects"] = [{"kind": "Group", "name": team, "apiGroup": "rbac.authorization.k8s.io"}]
        either.post(BINDINGS, body).ok()
        settled(As(either, groups=(team,)), "GET", PODS)
        assert As(either, groups=("system:masters",)).may("GET", "/api/v1/secrets")

    def test_a_path_that_is_deprecated_is_for_watching_only(self, client: Client) -> None:
        user = As(client)
        grant(client, user.user, rule("watch", "configmaps"))
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sneaked"}}
        assert user.send("POST", "/api/v1/watch/namespaces/default/configmaps", body).code in (403, 405)
        assert client.send("POST", "/api/v1/watch/namespaces/default/configmaps", body).code == 405


class TestReviews:
    def review(self, client: Client, kind: str, spec: Unstructured, path: str = REVIEWS, user: As | None = None) -> Any:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        if "namespaces" in path:
            body["metadata"] = {"namespace": "default"}
        sender = client.send if user is None else user.send
        answer = sender("POST", f"{path}/{kind.lower()}s", body)
        assert answer.code == 201, answer.data
        return answer.json["status"]

    def test_can_i(self, either: Client) -> None:
        user = As(either)
        grant(either, user.user, rule("get", "pods"))
        settled(user, "GET", f"{PODS}/none")
        asked = {"verb": "get", "resource": "pods", "namespace": "default"}
        for attributes, allowed in (
            (asked, True),
            ({**asked, "verb": "list"}, False),
            ({**asked, "namespace": "kube-system"}, False),
            ({**asked, "subresource": "log"}, False),
        ):
            spec = {"resourceAttributes": attributes}
            assert self.review(either, "SelfSubjectAccessReview", spec, user=user)["allowed"] == allowed
            spec["user"] = user.user
            assert self.review(either, "SubjectAccessReview", spec)["allowed"] == allowed
        local = {"user": user.user, "resourceAttributes": asked}
        path = f"{REVIEWS}/namespaces/default"
        assert self.review(either, "LocalSubjectAccessReview", local, path)["allowed"]
        denied = user.send("POST", f"{REVIEWS}/subjectaccessreviews", {})
        assert denied.code == 403, "about others only those who may"

    def test_paths_and_rules(self, either: Client) -> None:
        user = As(either, groups=(unique("g"),))
        grant(either, user.user, rule("get", "pods"))
        settled(user, "GET", f"{PODS}/none")
        spec = {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
        assert not self.review(either, "SelfSubjectAccessReview", spec, user=user)["allowed"]
        status = self.review(either, "SelfSubjectRulesReview", {"namespace": "default"}, user=user)
        found = [entry for entry in status["resourceRules"] if entry["resources"] == ["pods"]]
        assert found == [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]


class TestImpersonation:
    def test_it_needs_a_permission_for_each_part(self, client: Client) -> None:
        account = unique("account")
        client.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": account}}).ok()
        path = f"/api/v1/namespaces/default/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = client.post(path, body).ok()["status"]["token"]
        name = f"system:serviceaccount:default:{account}"
        grant(client, name, rule("impersonate", "users", resourceNames=["ada"]), cluster=True)
        grant(client, "ada", rule("get", "pods"))
        plain = {"Authorization": f"Bearer {token}"}

        def code(**headers: str) -> int:
            sent = {**plain, **{key.replace("_", "-"): value for key, value in headers.items()}}
            return client.send("GET", f"{PODS}/none", headers=sent).code

        until(lambda: code(Impersonate_User="ada") == 404, what="the permission")
        assert code() == 403
        assert code(Impersonate_User="bob") == 403
        assert code(Impersonate_User="ada", Impersonate_Group="system:masters") == 403
        assert code(Impersonate_User="ada", Impersonate_Uid="1") == 403
        assert code(Impersonate_User="ada", Impersonate_Extra_Team="x") == 403

    def test_without_a_user_it_is_none(self, client: Client) -> None:
        answer = client.send("GET", PODS, headers={"Impersonate-Group": "x"})
        assert answer.code == 400


class TestGrants:
    """Nobody gives what they don't have."""

    def role(self, *rules: Unstructured) -> Unstructured:
        return {"apiVersion": API_VERSION, "kind": "Role", "metadata": {"name": unique("r")}, "rules": list(rules)}

    def test_roles(self, either: Client) -> None:
        user = As(either)
        grant(either, user.user, rule("get list create patch", "roles", "rbac.authorization.k8s.io"))
        grant(either, user.user, rule("get list", "pods"))
        settled(user, "GET", PODS)
        settled(user, "GET", ROLES)
        assert user.send("POST", ROLES, self.role(rule("get", "pods"))).code == 201
        for beyond in (rule("delete", "pods"), rule("get", "*"), rule("*", "pods"), rule("get", "pods/log")):
            answer = user.send("POST", ROLES, self.role(beyond))
            assert answer.code == 403
            assert "is attempting to grant RBAC permissions not currently held" in answer.message
        mine = self.role(rule("get", "pods"))
        user.send("POST", ROLES, mine).ok()
        path = f"{ROLES}/{mine['metadata']['name']}"
        wider = {"rules": [rule("delete", "pods")]}
        answer = user.client.send(
            "PATCH", path, wider, "application/merge-patch+json", headers={"Impersonate-User": user.user}
        )
        assert answer.code == 403

    def test_the_verb_escalate_allows_it(self, either: Client) -> None:
        user = As(either)
        grant(either, user.user, rule("create escalate", "roles", "rbac.authorization.k8s.io"))
        until(lambda: user.send("POST", ROLES, self.role(rule("*", "*"))).code == 201, what="the role")

    def test_bindings(self, either: Client) -> None:
        user = As(either)
        grant(either, user.user, rule("create", "rolebindings", "rbac.authorization.k8s.io"))
        until(lambda: user.may("POST", BINDINGS, {}), what="the permission")
        answer = user.send("POST", BINDINGS, binding("eve", "ClusterRole", "admin"))
        assert answer.code == 403
        assert "not currently held" in answer.message
        may_bind = rule("bind", "clusterroles", "rbac.authorization.k8s.io", resourceNames=["admin"])
        grant(either, user.user, may_bind, cluster=True)
        until(
            lambda: user.send("POST", BINDINGS, binding("eve", "ClusterRole", "admin")).code == 201, what="the binding"
        )
        assert user.send("POST", BINDINGS, binding("eve", "ClusterRole", "cluster-admin")).code == 403

    def test_an_aggregated_role_is_for_those_who_have_everything(self, client: Client) -> None:
        user = As(client)
        grant(client, user.user, rule("*", "clusterroles", "rbac.authorization.k8s.io"), cluster=True)
        body = {"apiVersion": API_VERSION, "kind": "ClusterRole", "metadata": {"name": unique("agg")}}
        body["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
        answer = user.send("POST", f"{RBAC}/clusterroles", body)
        assert answer.code == 201, "the verb * is escalate, too"
        grant(
            client, other := unique("other"), rule("create", "clusterroles", "rbac.authorization.k8s.io"), cluster=True
        )
        body["metadata"]["name"] = unique("agg")
        assert As(client, other).send("POST", f"{RBAC}/clusterroles", body).code == 403


def test_roles_are_aggregated() -> None:
    world = InProcessCluster()
    for resource, role in bootstrap_roles():
        world.verbs.create(resource, "", role)
    world.run()
    roles = "clusterroles.rbac.authorization.k8s.io"

    def resources(name: str) -> set[str]:
        found = world.get(roles, name, "")["rules"]
        return {resource for entry in found for resource in entry["resources"]}

    assert "pods" in resources("view")
    assert "secrets" not in resources("view")
    assert {"pods", "secrets"} <= resources("edit")
    assert {"pods", "secrets", "roles"} <= resources("admin")
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    widgets = {"metadata": {"name": "widgets", "labels": labels}, "rules": [rule("get", "widgets", "example.com")]}
    world.verbs.create(roles, "", widgets)
    world.step()
    assert all("widgets" in resources(name) for name in ("view", "edit", "admin"))
    world.verbs.delete(roles, "", "widgets")
    world.step()
    assert not any("widgets" in resources(name) for name in ("view", "edit", "admin"))


class TestTokens:
    ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"

    def token(self, served: Served, account: str, **spec: Any) -> Client:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = served.client.post(f"{self.ACCOUNTS}/{account}/token", body).ok()
        return Client(served.kubeconfig, made["status"]["token"])

    def test_a_token_ends_with_its_account(self, served: Served) -> None:
        name = unique("account")
        served.client.post(self.ACCOUNTS, {"metadata": {"name": name}}).ok()
        guest = self.token(served, name)
        assert guest.get("/api").code == 200
        assert guest.get(PODS).code == 403, "and it opens what its roles allow"
        served.client.delete(f"{self.ACCOUNTS}/{name}").ok()
        assert guest.get("/api").code == 401
        served.client.post(self.ACCOUNTS, {"metadata": {"name": name}}).ok()
        assert guest.get("/api").code == 401, "another account of the same name is another one"

    def test_and_with_the_object_that_it_is_bound_to(self, served: Served) -> None:
        name = unique("map")
        secret = {"metadata": {"name": name}, "apiVersion": "v1", "kind": "Secret"}
        served.client.post("/api/v1/namespaces/default/secrets", secret).ok()
        guest = self.token(served, "default", boundObjectRef={"kind": "Secret", "apiVersion": "v1", "name": name})
        assert guest.get("/api").code == 200
        served.client.delete(f"/api/v1/namespaces/default/secrets/{name}").ok()
        assert guest.get("/api").code == 401


VERBS, GROUPS = ["get", "list", "create", "*", "impersonate"], ["", "apps", "*"]
RESOURCES = ["pods", "pods/log", "deployments", "deployments/scale", "*", "*/log", "*/scale", "secrets"]
NAMES, NAMESPACES, USERS = ["a", "b"], ["", "default", "kube-system"], ["ada", "bob"]


def random_roles(chance: random.Random, count: int) -> Iterator[tuple[Unstructured, bool, str]]:
    for _ in range(count):
        made = rule("", "")
        made["verbs"] = chance.sample(VERBS, chance.randint(1, 2))
        made["apiGroups"] = chance.sample(GROUPS, chance.randint(1, 2))
        made["resources"] = chance.sample(RESOURCES, chance.randint(1, 2))
        if chance.random() < 0.3:
            made["resourceNames"] = chance.sample(NAMES, 1)
        yield made, chance.random() < 0.4, chance.choice(USERS)


def random_attributes(chance: random.Random) -> Unstructured:
    resource, _, subresource = chance.choice(
        ["pods", "pods/log", "deployments", "deployments/scale", "secrets"]
    ).partition("/")
    chosen = {"verb": chance.choice(VERBS[:3]), "group": chance.choice(GROUPS[:2]), "resource": resource}
    chosen |= {"subresource": subresource, "name": chance.choice(["", *NAMES]), "namespace": chance.choice(NAMESPACES)}
    return chosen


def test_random_roles_allow_what_a_real_server_allows(served: Served, request: pytest.FixtureRequest) -> None:
    real = Client(request.getfixturevalue("control_plane").kubeconfig)
    chance, wrong = random.Random(7), []
    for round_number in range(max(1, TRIPLES // 100)):
        users = {name: unique(name) for name in USERS}
        for made, cluster, user in random_roles(chance, 4):
            for client in (served.client, real):
                grant(client, users[user], made, cluster=cluster)
        last = unique("last")
        for client in (served.client, real):  # when the last binding is seen, the others are
            grant(client, last, rule("get", "pods"))
        settled(As(real, last), "GET", f"{PODS}/none")
        for _ in range(100):
            spec = {"user": users[chance.choice(USERS)], "resourceAttributes": random_attributes(chance)}
            body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
            path = f"{REVIEWS}/subjectaccessreviews"
            ours, theirs = (client.post(path, body).ok()["status"]["allowed"] for client in (served.client, real))
            if ours != theirs:
                wrong.append((round_number, spec, ours))
    assert wrong == []
