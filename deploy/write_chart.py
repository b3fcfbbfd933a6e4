"""Writes the Helm chart from the manifests of `windlass install`, so that both say the same.

    python deploy/write_chart.py [FOLDER]

What may differ between clusters is put in as marks and replaced by Helm's expressions afterwards. `Chart.yaml` and
`values.yaml` are written by hand; a test runs this and compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

from windlass.cli.install import to_yaml
from windlass.cli.install_crds import crds
from windlass.cli.install_manifests import Choices, manifests

CHART = Path(__file__).parent / "chart" / "windlass"
MARKED = Choices(
    namespace="MARK-namespace",
    image="MARK-image",
    pull_policy="MARK-pull-policy",
    replicas=424242,
    scheduler_names=("MARK-name",),
    node_selector="MARK-node-selector",
    take_over=("MARK-queue",),
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
            f"{indent}{{{{- range .Values.takeOver }}}}\n"
            f"{indent}- --take-over={{{{ . }}}}\n"
            f"{indent}{{{{- end }}}}\n"
        ),
    }


def chart_files() -> dict[str, str]:
    """Path in the chart → content, of all files that are written from the manifests."""
    files = {f"crds/{one['metadata']['name']}.yaml": to_yaml([one]) for one in crds()}
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
