"""`windlass scheduler` and `windlass install` as they are typed: mistakes are one line, manifests are complete."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from windlass.kube.client_config import load_client_config
from windlass.model.errors import ClusterUnreachable

PROGRAM = str(Path(sys.executable).with_name("windlass"))


def run(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    command = [PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["scheduler"], 3, "no kubeconfig was found"),
        (["scheduler", "--kubeconfig=/no/such/file"], 2, "/no/such/file: there is no such kubeconfig"),
        (["scheduler", "--node-selector=gpu"], 2, "'gpu' is not a label such as pool=gpu"),
        (["scheduler", "--listen=here"], 2, "'here' is not an address"),
        (["scheduler", "--lease-seconds=0.1"], 2, "at least a second"),
        (["uninstall"], 3, "no kubeconfig was found"),
        (["install", "--replicas=0"], 2, "--replicas"),
        (["bench", "live"], 2, "--kubeconfig"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    done = run(*arguments, home=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_kubeconfig_of_the_environment_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnreachable, match="KUBECONFIG: /no/such/file does not exist"):
        load_client_config(environment={"KUBECONFIG": "/no/such/file"})
    empty = tmp_path / "empty"
    empty.write_text("{}")
    with pytest.raises(ClusterUnreachable, match=f"KUBECONFIG: {empty} names no cluster"):
        load_client_config(environment={"KUBECONFIG": str(empty)})


def test_an_address_that_cannot_be_served_is_one_line(tmp_path: Path) -> None:
    config = tmp_path / "config"
    content = {"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}]}
    content["clusters"] = [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]
    config.write_text(yaml.safe_dump(content))
    # An address that is only there for examples: no machine has it.
    done = run("scheduler", f"--kubeconfig={config}", "--listen=192.0.2.1:80", home=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "192.0.2.1:80" in done.stderr
    assert "check --listen" in done.stderr


def printed(tmp_path: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    done = run("install", *arguments, home=tmp_path)
    assert done.returncode == 0, done.stderr
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in yaml.safe_load_all(done.stdout)}


def test_what_is_installed_is_locked_down(tmp_path: Path) -> None:
    found = printed(tmp_path)
    deployment = found["Deployment/windlass-scheduler"]["spec"]
    pod = deployment["template"]["spec"]
    container = pod["containers"][0]
    assert deployment["replicas"] == 2
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert {"livenessProbe", "readinessProbe", "startupProbe"} <= container.keys()
    assert found["PodDisruptionBudget/windlass-scheduler"]["spec"]["maxUnavailable"] == 1
    assert found["NetworkPolicy/windlass-scheduler"]["spec"]["policyTypes"] == ["Ingress", "Egress"]
    rules = found["ClusterRole/windlass-scheduler"]["rules"]
    assert all("*" not in (*rule["resources"], *rule["verbs"], *rule["apiGroups"]) for rule in rules)
    assert not any("secrets" in rule["resources"] for rule in rules)


def test_choices_reach_the_manifests(tmp_path: Path) -> None:
    names = ["--scheduler-name=a", "--scheduler-name=b"]
    found = printed(tmp_path, "-n", "gpu", "--image=r/w:1", "--crds=never", *names, "--node-selector=pool=gpu")
    assert not any(key.startswith("CustomResourceDefinition") for key in found)
    container = found["Deployment/windlass-scheduler"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "r/w:1"
    assert {"--scheduler-name=a", "--scheduler-name=b", "--node-selector=pool=gpu"} <= set(container["args"])
    subject = found["ClusterRoleBinding/windlass-scheduler"]["subjects"][0]
    assert subject["namespace"] == "gpu"
