"""The same failure in another order, and in a busier cluster: what has nothing to do with it changes nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.diagnose.holdout import CASES, Case, condition
from tests.diagnose.objects import NOW, event, evidence, node, pod, thing
from tests.diagnose.test_cases import CASES as REAL
from tests.diagnose.test_cases import told

from windlass.diagnose.evidence import load_evidence
from windlass.diagnose.why import why
from windlass.dump.files import newest_timestamp
from windlass.model.unstructured import Unstructured


def code_of(case: Case, objects: list[Unstructured], logs: dict[str, str] | None = None) -> str:
    return why(evidence(objects, {**case.logs, **(logs or {})}, case.hosts), case.question, "", NOW).code


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_the_objects_means_nothing(name: str) -> None:
    case = CASES[name]
    shuffled = list(case.objects)
    random.Random(name).shuffle(shuffled)
    assert code_of(case, shuffled) == case.code


def crowd() -> list[Unstructured]:
    """Other people's healthy work, on machines of their own without GPUs."""
    others: list[Unstructured] = [node(f"web-{number}", labels={"pool": "web"}, taints=[WEB]) for number in range(4)]
    others += [pod(f"web-{number}", on=f"web-{number % 4}", namespace="shop", spec=FOR_WEB) for number in range(12)]
    others += [pod(f"done-{number}", on="web-0", namespace="shop", phase="Succeeded") for number in range(3)]
    others.append(thing("Deployment", "web", {"replicas": 12}, namespace="shop"))
    others.append(
        thing(
            "ResourceQuota",
            "shop",
            {"hard": {"requests.cpu": "1"}},
            "v1",
            namespace="shop",
            status={"used": {}},
        )
    )
    others.append(
        thing(
            "Job",
            "nightly",
            {},
            "batch/v1",
            namespace="shop",
            status={"conditions": [condition("Complete", "True", "", "")]},
        )
    )
    said = event("Pod/web-1", "Unhealthy", "Readiness probe failed: connection refused", "kubelet")
    said["involvedObject"]["namespace"] = said["metadata"]["namespace"] = "shop"
    return [*others, said]


@pytest.mark.parametrize("case", REAL, ids=lambda case: case.name)
def test_real_cases_in_another_order_and_in_a_crowd(case: Path) -> None:
    asked, known = told(case), load_evidence(case)
    objects = [obj for obj in yaml.safe_load_all((case / "cluster.yaml").read_text()) if obj]
    asks = "nvidia.com/" in str(objects)
    objects += crowd() if asks else []
    random.Random(case.name).shuffle(objects)
    variant = evidence(objects)
    variant._pod_logs, variant._host_logs = known._pod_logs, known._host_logs
    found = why(variant, asked["question"], asked.get("namespace", ""), newest_timestamp(case))
    assert found.code == asked["code"], found.headline


WEB = {"key": "shop", "value": "web", "effect": "NoSchedule"}
FOR_WEB: dict[str, Any] = {
    "tolerations": [{"key": "shop", "operator": "Exists"}],
    "nodeSelector": {"pool": "web"},
}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "nvidia.com/" in str(case.objects)])
def test_other_peoples_work_means_nothing(name: str) -> None:
    case = CASES[name]
    noise = {"shop/web-1": "GET /health 200\nERROR could not reach the payment service, retrying"}
    found = code_of(case, [*crowd()[:9], *case.objects, *crowd()[9:]], noise)
    assert found == case.code
