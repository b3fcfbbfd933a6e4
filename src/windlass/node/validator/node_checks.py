"""The validator's checks of the node around the GPUs: the driver's files, and the container runtime.

Called by `checks.validate`. They say which way devices take into containers on this node; a failure here fails the
validation of the node and takes no GPU away, since the plugin has its own reasons for that.
"""

from __future__ import annotations

from windlass.model.errors import InputError
from windlass.node.cdi_hooks import SHELL, find_hook_program
from windlass.node.container_runtime import (
    NVIDIA_RUNTIMES,
    describe_way,
    find_container_runtime,
    strategy_problem,
    with_strategy,
)
from windlass.node.driver_files import find_driver
from windlass.node.host_root import HostRoot
from windlass.node.validator.outcome import FAIL, NOT_APPLICABLE, PASS, Check
from windlass.sharing.plugin_config import PluginConfig


def check_driver_files(root: HostRoot, version: str, config: PluginConfig) -> Check:
    """Whether a CDI spec would have CUDA in it."""
    roots = {"driver_root": config.nvidia_driver_root, "container_driver_root": config.container_driver_root}
    try:
        driver = find_driver(root, version, **roots)
    except InputError as error:
        return Check(name="driver files", outcome=FAIL, evidence=str(error), remedy=error.remedy)
    hooks = find_hook_program(root, config.nvidia_ctk_path, None)
    by = "none, so links are mounted" if hooks is None else "Windlass's own" if hooks.path == SHELL else hooks.path
    evidence = f"{len(driver.libraries)} libraries and {len(driver.links)} links in {driver.root}; CDI hooks: {by}"
    return Check(name="driver files", outcome=PASS, evidence=evidence)


def check_runtime(root: HostRoot, config: PluginConfig) -> Check:
    """The runtime, NVIDIA's runtime beside it, and which of the two ways is used."""
    runtime = find_container_runtime(root)
    config = with_strategy(config, runtime)
    toolkit = next((path for path in NVIDIA_RUNTIMES if root.host_file(path).exists()), "")
    evidence = f"{describe_way(config, runtime)}; NVIDIA's toolkit: {toolkit or 'not installed'}"
    if runtime is None:
        return Check(name="container runtime", outcome=NOT_APPLICABLE, evidence=evidence)
    problem = strategy_problem(config, runtime)
    if problem:
        remedy = problem.rpartition("; ")[2]
        return Check(name="container runtime", outcome=FAIL, evidence=problem.rpartition("; ")[0], remedy=remedy)
    return Check(name="container runtime", outcome=PASS, evidence=evidence)
