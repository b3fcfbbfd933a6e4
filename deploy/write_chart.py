"""Writes the Helm chart from the manifests of `windlass install`, so that both say the same.

    python deploy/write_chart.py [FOLDER]

What may differ between clusters is put in as marks and replaced by Helm's expressions afterwards. `Chart.yaml` and
`values.yaml` are written by hand; a test runs this and compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from windlass.cli.install import to_yaml
from windlass.cli.install_crds import crds
from windlass.cli.install_manifests import InstallOptions, manifests
from windlass.cli.install_node_manifests import NodeInstallOptions, node_manifests

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
    parts=("MARK-parts",),
    label_sink="file",
    pod_monitor=True,
    runtime_class="MARK-runtime-class",
    configs=(("config.yaml", "MARK-config"),),
    default_config="MARK-default-config",
    arguments=("MARK-argument",),
)


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
    runtime = block_at(text, f"{pod}runtimeClassName:")
    text = text.replace(runtime, when(".Values.node.runtimeClass", runtime))
    affinity = block_at(text, f"{pod}affinity:")
    selector = f"{pod}nodeSelector:\n{{{{ toYaml . | indent 8 }}}}\n"
    return text.replace(
        affinity,
        f"{{{{- with .Values.node.nodeSelector }}}}\n{selector}{{{{- else }}}}\n{affinity}{{{{- end }}}}\n",
    )


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
        "MARK-parts": '{{ join "," .Values.node.parts }}',
        "--label-sink=file": "--label-sink={{ .Values.node.labelSink }}",
        "MARK-runtime-class": "{{ .Values.node.runtimeClass }}",
        "MARK-config": "{{ .Values.node.config | toJson }}",
        "MARK-default-config": "{{ .Values.node.defaultConfig }}",
    }
    for mark, expression in marks.items():
        text = text.replace(mark, expression)
    assert "MARK" not in text, text
    return when(".Values.node.enabled", text)


def chart_files() -> dict[str, str]:
    """Path in the chart → content, of all files that are written from the manifests."""
    files = {f"crds/{one['metadata']['name']}.yaml": to_yaml([one]) for one in crds()}
    features = msgspec.structs.replace(NODE_MARKED, label_sink="node-feature")  # its role is the larger one
    roles = [one for one in node_manifests(features) if one["kind"] == "ClusterRole"]
    for one in (*node_manifests(NODE_MARKED), *roles):
        if one["kind"] == "ClusterRole" and one not in roles:
            continue
        files[f"templates/node-{one['kind'].lower()}.yaml"] = node_template(to_yaml([one]), one["kind"])
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
