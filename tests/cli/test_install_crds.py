"""The CRDs that Windlass installs: what `kubectl get` shows of them, and whose they are."""

from __future__ import annotations

import pytest

from windlass.cli.install_crds import KUEUE, QUEUE_API_ANNOTATION, crds

KUEUE_COLUMNS = {
    "ClusterQueue": ["Cohort", "Strategy", "Pending Workloads", "Admitted Workloads"],
    "LocalQueue": ["ClusterQueue", "Pending Workloads", "Admitted Workloads"],
    "Workload": ["Queue", "Reserved in", "Admitted", "Finished", "Age"],
    "WorkloadPriorityClass": ["Value"],
}
"""As in Kueue's own CRDs."""


@pytest.mark.parametrize("crd", crds(), ids=lambda crd: crd["spec"]["names"]["kind"])
def test_every_version_of_every_kind_has_columns(crd: dict) -> None:  # type: ignore[type-arg]
    kind = crd["spec"]["names"]["kind"]
    for version in crd["spec"]["versions"]:
        columns = [column["name"] for column in version["additionalPrinterColumns"]]
        assert columns
        assert columns == KUEUE_COLUMNS.get(kind, columns)
        for column in version["additionalPrinterColumns"]:
            assert _is_in_schema(column["jsonPath"], version["schema"]["openAPIV3Schema"]), column


def test_old_versions_show_what_they_call_their_cohort() -> None:
    queue = next(crd for crd in crds() if crd["spec"]["names"]["kind"] == "ClusterQueue")
    paths = {
        version["name"]: version["additionalPrinterColumns"][0]["jsonPath"] for version in queue["spec"]["versions"]
    }
    assert paths == {"v1beta2": ".spec.cohortName", "v1beta1": ".spec.cohort"}


def test_the_queue_api_says_whose_it_is() -> None:
    for crd in crds():
        annotations = crd["metadata"].get("annotations") or {}
        assert (QUEUE_API_ANNOTATION in annotations) == (crd["spec"]["group"] == KUEUE)


def _is_in_schema(path: str, schema: dict) -> bool:  # type: ignore[type-arg]
    """Whether the fields before the first filter are declared."""
    for part in path.split("[")[0].strip(".").split("."):
        if part == "metadata":
            return True
        schema = schema["properties"].get(part)
        if schema is None:
            return False
    return True
