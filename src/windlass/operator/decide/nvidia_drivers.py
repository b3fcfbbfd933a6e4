"""Drives the drivers of NVIDIA's operator: one NVIDIADriver a version, chosen by the label
`windlass.dev/driver-revision`, beside the default one, which stays as its owner wrote it.

Called by `decide.main` after all stacks, since the objects are cluster-wide. NVIDIA's operator (26.7 and later) gives
every node that no other NVIDIADriver selects to the default one; so moving the label of one node changes that node
alone, and taking the label away is the way back. What is made is never changed, and deleted when no node, record or
change names its version any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.model.names.kubernetes import APP_MANAGED_BY_LABEL
from windlass.model.names.windlass import DRIVER_REVISION_LABEL
from windlass.operator.decide.gpu_operator import default_driver, nvidia_driver_name
from windlass.operator.decide.owners import GPU_OPERATOR
from windlass.operator.decide.pool import Pool
from windlass.operator.decide.revisions import versions
from windlass.operator.observed import NvidiaDriver, Observed
from windlass.operator.writes import CreateNvidiaDriver, DeleteNvidiaDriver, Write

API_VERSION = "nvidia.com/v1alpha1"


def put_nvidia_drivers(pools: Sequence[Pool], observed: Observed) -> Iterator[Write]:
    default, known = default_driver(observed), observed.nvidia_drivers
    driven = [pool for pool in pools if pool.stack.spec.driver.source == GPU_OPERATOR]
    wanted = {version for pool in driven for version in versions(pool, "driver")} - {""}
    if default is not None:
        for version in sorted(wanted):
            name = nvidia_driver_name(version)
            if name not in known:
                yield CreateNvidiaDriver(name, _body(default, version))
    # A node may have left its stack, and still run what its label says.
    wanted |= {node.labels.get(DRIVER_REVISION_LABEL, "") for node in observed.nodes.values()}
    needed = {nvidia_driver_name(version) for version in wanted}
    for name, driver in sorted(known.items()):
        if driver.is_ours and name not in needed:
            yield DeleteNvidiaDriver(name, driver.uid)


def _body(default: NvidiaDriver, version: str) -> dict[str, object]:
    """The default one with another version, for the nodes with its label."""
    spec = {key: value for key, value in default.spec.items() if key not in ("default", "nodeSelector")}
    return {
        "apiVersion": API_VERSION,
        "kind": "NVIDIADriver",
        "metadata": {"name": nvidia_driver_name(version), "labels": {APP_MANAGED_BY_LABEL: "windlass"}},
        "spec": {**spec, "version": version, "nodeSelector": {DRIVER_REVISION_LABEL: version}},
    }
