"""Writes the Helm chart from the manifests of `windlass install`, so that both say the same.

    python deploy/write_chart.py [FOLDER]

What may differ between clusters is put in as marks and replaced by Helm's expressions afterwards. `Chart.yaml` and
`values.yaml` are written by hand; a test runs this and compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from windlass.cli.install import to_yaml
from windlass.cli.install_crds import KUEUE, crds
from windlass.cli.install_manifests import InstallOptions, manifests
from windlass.cli.install_node_manifests import (
    HISTORY_FOLDER,
    HOST_FILES,
    MOUNTED_HOST,
    NodeInstallOptions,
    node_manifests,
)
from windlass.cli.install_observe import ObserveInstallOptions, observe_manifests
from windlass.cli.install_operator import OperatorInstallOptions, operator_manifests
from windlass.cli.install_operator_crds import operator_crds
from windlass.cli.install_platforms import PLATFORMS
from windlass.model.unstructured import Unstructured

CHART = Path(__file__).parent / "chart" / "windlass"
MARKED = InstallOptions(
    namespace="MARK-namespace",
    image="MARK-image",
    pull_policy="MARK-pull-policy",
    replicas=424242,
    scheduler_names=("MARK-name",),
    node_selector="MARK-node-selector",
    take_over=("MARK-queue",),
)
NODE_IMAGE = (
    '{{ .Values.node.image | default (printf "%s-node" .Values.image.repository) }}:'
    "{{ .Values.image.tag | default .Chart.AppVersion }}"
)
NODE_MARKED = NodeInstallOptions(
    namespace="MARK-namespace",
    image="MARK-image",
    pull_policy="MARK-pull-policy",
    parts=("plugin", "MARK-parts"),
    label_sink="file",
    pod_monitor=True,
    runtime_class="MARK-runtime-class",
    configs=(("config.yaml", "MARK-config"),),
    default_config="MARK-default-config",
    arguments=("MARK-argument",),
    history=True,
    mount_host_root=True,
)

OBSERVE_MARKED = ObserveInstallOptions(
    install=msgspec.structs.replace(MARKED, replicas=1),
    prometheus="MARK-prometheus",
    prometheus_token_secret="MARK-token-secret",
    tls_secret="MARK-tls-secret",
)

OPERATOR_MARKED = OperatorInstallOptions(
    install=MARKED,
    driver_namespace="MARK-driver-namespace",
    canary_namespace="MARK-canary-namespace",
    prometheus="MARK-prometheus",
)

PLATFORM_KINDS = {"RoleBinding": "openshift", "ResourceQuota": "gke"}
"""Kinds that one platform needs."""


def expressions(indent: str) -> dict[str, str]:
    """Mark → what Helm puts in its place."""
    return {
        "MARK-namespace": "{{ .Release.Namespace }}",
        "MARK-image": "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}",
        "MARK-pull-policy": "{{ .Values.image.pullPolicy }}",
        "424242": "{{ .Values.replicas }}",
        "app.kubernetes.io/managed-by: windlass": "app.kubernetes.io/managed-by: {{ .Release.Service }}",
        f"{indent}- --scheduler-name=MARK-name\n": (
            f"{indent}{{{{- range .Values.schedulerNames }}}}\n"
            f"{indent}- --scheduler-name={{{{ . }}}}\n"
            f"{indent}{{{{- end }}}}\n"
        ),
        f"{indent}- --node-selector=MARK-node-selector\n": (
            f"{indent}{{{{- with .Values.nodeSelector }}}}\n"
            f"{indent}- --node-selector={{{{ . }}}}\n"
            f"{indent}{{{{- end }}}}\n"
        ),
        f"{indent}- --take-over=MARK-queue\n": (
            f"{indent}{{{{- range .Values.takeOver }}}}\n{indent}- --take-over={{{{ . }}}}\n{indent}{{{{- end }}}}\n"
        ),
    }


def when(condition: str, block: str) -> str:
    """A block of lines that is there only under a condition."""
    return f"{{{{- if {condition} }}}}\n{block}{{{{- end }}}}\n"


def either(condition: str, block: str, other: str) -> str:
    """One block of lines or another."""
    return f"{{{{- if {condition} }}}}\n{block}{{{{- else }}}}\n{other}{{{{- end }}}}\n"


def block_at(text: str, start: str) -> str:
    """The lines of an entry: from the one that begins with `start` down to the next that isn't indented deeper."""
    lines = text.splitlines(keepends=True)
    (first,) = [number for number, line in enumerate(lines) if line.startswith(start)]
    depth = len(start) - len(start.lstrip())
    last = first + 1
    while last < len(lines) and len(lines[last]) - len(lines[last].lstrip()) > depth:
        last += 1
    return "".join(lines[first:last])


def on_platforms(names: Iterable[str]) -> str:
    """The condition that the platform is one of these."""
    return f"has .Values.node.platform (list {' '.join(json.dumps(name) for name in names)})"


def by_platform(blocks: Mapping[str, str]) -> str:
    """The block of the platform that was chosen, from all of them by name."""
    names_by_block: dict[str, list[str]] = {}
    for name, block in blocks.items():
        if block != blocks[""]:
            names_by_block.setdefault(block, []).append(name)
    text = blocks[""]
    for block, names in names_by_block.items():
        text = either(on_platforms(names), block, text) if text else when(on_platforms(names), block)
    return text


def platform_blocks(start: str, **choices: Any) -> dict[str, str]:
    """An entry of the DaemonSet as each platform has it; empty where it has none."""
    blocks = {}
    for name in PLATFORMS:
        marked = msgspec.structs.replace(NODE_MARKED, platform=name, **choices)
        text = to_yaml([item for item in node_manifests(marked) if item["kind"] == "DaemonSet"])
        blocks[name] = block_at(text, start) if f"\n{start}" in text else ""
    return blocks


def platform_template(text: str) -> str:
    """What a platform changes of the DaemonSet: a folder of the kubelet's, and which nodes have GPUs."""
    pod = " " * 6
    folder = f"{pod}- name: pod-resources\n"
    text = text.replace(block_at(text, folder), by_platform(platform_blocks(folder)))
    affinity = f"{pod}affinity:\n"
    selected = by_platform(platform_blocks(affinity, node_selector=(("MARK", "MARK"),)))
    selector = f"{pod}nodeSelector:\n{{{{ toYaml .Values.node.nodeSelector | indent 8 }}}}\n"
    other = by_platform(platform_blocks(affinity))
    text = text.replace(block_at(text, affinity), either(".Values.node.nodeSelector", selector + selected, other))
    known = ", ".join(sorted(set(PLATFORMS) - {""}))
    refusal = f'{{{{- fail (printf "node.platform: %s is not one of {known}" .Values.node.platform) }}}}\n'
    return when(f"not ({on_platforms(PLATFORMS)})", refusal) + text


def daemon_template(text: str, has_config: str) -> str:
    """The DaemonSet: arguments, volumes, runtime class and selector that depend on a choice."""
    pod, container = " " * 6, " " * 8
    folder = f"{container}- --config-file-srcdir=/etc/windlass\n"
    file = when(".Values.node.config", f"{container}- --config-file=/etc/windlass/config.yaml\n")
    text = text.replace(folder, either(".Values.node.configs", folder, file))
    default = f"{container}- --default-config=MARK-default-config\n"
    text = text.replace(default, when(".Values.node.defaultConfig", default))
    argument = f"{container}- MARK-argument\n"
    each = argument.replace("MARK-argument", "{{ . | quote }}")
    text = text.replace(argument, f"{{{{- range .Values.node.args }}}}\n{each}{{{{- end }}}}\n")
    to_file = 'eq .Values.node.labelSink "file"'
    for block in (
        block_at(text, f"{container}- name: features\n"),
        block_at(text, f"{pod}- name: features\n"),
    ):
        text = text.replace(block, when(to_file, block))
    for block in (
        block_at(text, f"{container}- name: config\n"),
        block_at(text, f"{pod}- name: config\n"),
    ):
        text = text.replace(block, when(has_config, block))
    kept = f"{container}- --history={HISTORY_FOLDER}\n"
    for block in (kept, block_at(text, f"{container}- name: history\n"), block_at(text, f"{pod}- name: history\n")):
        text = text.replace(block, when(".Values.node.history", block))
    runtime = block_at(text, f"{pod}runtimeClassName:")
    text = text.replace(runtime, when(".Values.node.runtimeClass", runtime))
    probe = block_at(text, f"{container}readinessProbe:")
    text = text.replace(probe, when('has "plugin" .Values.node.parts', probe))
    for block in (block_at(text, f"{container}- name: host-root\n"), block_at(text, f"{pod}- name: host-root\n")):
        text = text.replace(block, when(".Values.node.mountHostRoot", block))
    files = f"{{{{ if .Values.node.mountHostRoot }}}}{MOUNTED_HOST}{{{{ else }}}}{HOST_FILES}{{{{ end }}}}"
    text = text.replace(f"value: {MOUNTED_HOST}\n", f"value: {files}\n")
    return platform_template(text)


def node_template(text: str, kind: str) -> str:
    """One object of the node agent: what depends on a choice is put under a condition."""
    has_config = "or .Values.node.config .Values.node.configs"
    if kind == "ConfigMap":
        single = "  config.yaml: MARK-config\n"
        several = "{{ toYaml .Values.node.configs | indent 2 }}\n"
        text = text.replace(single, either(".Values.node.configs", several, single))
        text = when(has_config, text)
    if kind == "PodMonitor":
        text = when(".Values.node.podMonitor", text)
    if kind == "ClusterRole":
        rule = text[text.index("- apiGroups:\n  - nfd.k8s-sigs.io") :]
        text = text.replace(rule, when('eq .Values.node.labelSink "node-feature"', rule))
    if kind == "DaemonSet":
        text = daemon_template(text, has_config)
    marks = {
        **expressions(""),
        "MARK-image": NODE_IMAGE,
        "MARK-namespace": "{{ .Values.node.namespace }}",
        "plugin,MARK-parts": '{{ join "," .Values.node.parts }}',
        "--label-sink=file": "--label-sink={{ .Values.node.labelSink }}",
        "MARK-runtime-class": "{{ .Values.node.runtimeClass }}",
        "MARK-config": "{{ .Values.node.config | toJson }}",
        "MARK-default-config": "{{ .Values.node.defaultConfig }}",
    }
    for mark, expression in marks.items():
        text = text.replace(mark, expression)
    assert "MARK" not in text, text
    is_shared = kind == "Namespace"  # agents and drivers run in one namespace
    return when("or .Values.node.enabled .Values.operator.enabled" if is_shared else ".Values.node.enabled", text)


def operator_template(text: str) -> str:
    """One object of the operator."""
    prometheus = f"{' ' * 8}- --prometheus=MARK-prometheus\n"
    given = prometheus.replace("MARK-prometheus", "{{ .Values.operator.prometheus }}")
    text = text.replace(prometheus, when(".Values.operator.prometheus", given))
    marks = {
        **expressions(""),
        "MARK-driver-namespace": "{{ .Values.node.namespace }}",
        "MARK-canary-namespace": "{{ .Values.operator.canaryNamespace }}",
        "424242": "{{ .Values.operator.replicas }}",
    }
    for mark, expression in marks.items():
        text = text.replace(mark, expression)
    assert "MARK" not in text, text
    return when(".Values.operator.enabled", text)


def observe_template(text: str, kind: str) -> str:
    """One object of the page's server: what depends on a choice is put under a condition."""
    pod, container = " " * 6, " " * 8
    if kind == "Deployment":
        tls = f"{container}- --tls-cert=/etc/windlass/tls/tls.crt\n{container}- --tls-key=/etc/windlass/tls/tls.key\n"
        text = text.replace(tls, either(".Values.observe.tlsSecret", tls, f"{container}- --behind-proxy\n"))
        scheme = f"{container}    scheme: HTTPS\n"
        text = text.replace(scheme, when(".Values.observe.tlsSecret", scheme))
        prometheus = f"{container}- --prometheus=MARK-prometheus\n"
        text = text.replace(prometheus, when(".Values.observe.prometheus", prometheus))
        token = f"{container}- --prometheus-token-file=/etc/windlass/prometheus/token\n"
        for block in (
            token,
            block_at(text, f"{container}- name: prometheus-token\n"),
            block_at(text, f"{pod}- name: prometheus-token\n"),
        ):
            text = text.replace(block, when(".Values.observe.prometheusTokenSecret", block))
        for block in (block_at(text, f"{container}- name: tls\n"), block_at(text, f"{pod}- name: tls\n")):
            text = text.replace(block, when(".Values.observe.tlsSecret", block))
    if kind == "NetworkPolicy":
        anywhere = "  egress:\n  - ports:\n    - protocol: TCP\n"
        narrow = "".join(f"    - protocol: TCP\n      port: {port}\n" for port in (443, 6443))
        assert anywhere in text
        chosen = either(".Values.observe.prometheus", "    - protocol: TCP\n", narrow)
        text = text.replace(anywhere, f"  egress:\n  - ports:\n{chosen}")
    marks = {
        **expressions(""),
        "MARK-prometheus": "{{ .Values.observe.prometheus }}",
        "MARK-token-secret": "{{ .Values.observe.prometheusTokenSecret }}",
        "MARK-tls-secret": "{{ .Values.observe.tlsSecret }}",
    }
    for mark, expression in marks.items():
        text = text.replace(mark, expression)
    assert "MARK" not in text, text
    return when(".Values.observe.enabled", text)


def platform_objects() -> list[Unstructured]:
    """What the admission of one platform asks for, each from the platform that has it."""
    everywhere = node_manifests(NODE_MARKED)
    found = []
    for kind, name in PLATFORM_KINDS.items():
        objects = node_manifests(msgspec.structs.replace(NODE_MARKED, platform=name))
        found += [item for item in objects if item["kind"] == kind and item not in everywhere]
    return found


def crd_template(crd: dict[str, Any], choice: str) -> str:
    """As a template, since Helm never upgrades what is in `crds/`. It stays when the release goes: objects of its kind
    may be somebody's. One that another installation brought is left to that. The queue API and the operator's kinds are
    there by choice."""
    name = crd["metadata"]["name"]
    metadata = crd["metadata"]
    kept = {**(metadata.get("annotations") or {}), "helm.sh/resource-policy": "keep"}
    text = to_yaml([{**crd, "metadata": {**metadata, "annotations": kept}}])
    assert "{{" not in text, name
    text = text.replace(
        "app.kubernetes.io/managed-by: windlass", expressions("")["app.kubernetes.io/managed-by: windlass"]
    )
    there = f'$there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "{name}"'
    release = '(dig "metadata" "annotations" "meta.helm.sh/release-name" "" (default dict $there))'
    condition = f"or (not $there) (eq {release} .Release.Name)"
    condition = f"and {choice} ({condition})" if choice else condition
    return f"{{{{- {there} }}}}\n{when(condition, text)}"


def chart_files() -> dict[str, str]:
    """Path in the chart → content, of all files that are written from the manifests."""
    chosen = [(crd, ".Values.queueAPI.install" if crd["spec"]["group"] == KUEUE else "") for crd in crds()]
    chosen += [(crd, ".Values.operator.enabled") for crd in operator_crds()]
    files = {f"templates/crd-{crd['metadata']['name']}.yaml": crd_template(crd, choice) for crd, choice in chosen}
    features = msgspec.structs.replace(NODE_MARKED, label_sink="node-feature")  # its role is the larger one
    roles = [one for one in node_manifests(features) if one["kind"] == "ClusterRole"]
    of_platforms = platform_objects()
    for item in (*node_manifests(NODE_MARKED), *roles, *of_platforms):
        if item["kind"] == "ClusterRole" and item not in roles:
            continue
        part = item["metadata"]["name"].removeprefix("windlass-node") if item["kind"] != "Namespace" else ""
        text = node_template(to_yaml([item]), item["kind"])
        if item in of_platforms:
            text = when(on_platforms([PLATFORM_KINDS[item["kind"]]]), text)
        files[f"templates/node{part}-{item['kind'].lower()}.yaml"] = text
    for one in observe_manifests(OBSERVE_MARKED)[1:]:
        text = observe_template(to_yaml([one]), one["kind"])
        files[f"templates/observe-{one['kind'].lower()}.yaml"] = text
    for one in operator_manifests(OPERATOR_MARKED):
        name = one["metadata"]["name"]
        if one["kind"] != "Namespace" or "canary" in name:  # not the release's own, nor the node agent's
            part = name.removeprefix("windlass-operator") if one["kind"] != "Namespace" else ""
            files[f"templates/operator{part}-{one['kind'].lower()}.yaml"] = operator_template(to_yaml([one]))
    for one in manifests(MARKED):
        if one["kind"] == "Namespace":
            continue  # the release's own
        text = to_yaml([one])
        for mark, expression in expressions(" " * 8).items():
            text = text.replace(mark, expression)
        assert "MARK" not in text, text
        files[f"templates/{one['kind'].lower()}.yaml"] = text
    return files


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else CHART
    for name, text in chart_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
