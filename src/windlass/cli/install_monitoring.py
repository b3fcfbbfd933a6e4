"""`windlass install monitoring`: alerts, a scrape of the scheduler and a dashboard, printed.

The rules are those of `telemetry.alert_rules`, the dashboard is that of `telemetry.dashboard`. Objects of Prometheus's
operator by default; `-o rules` and `-o dashboard` are for those who have none.
"""

from __future__ import annotations

import json

import click

from windlass.cli.parameters import default_option
from windlass.cli.scheduler import Labels
from windlass.model.unstructured import Unstructured

EXAMPLES = """\b
Examples:
  windlass install monitoring --label release=kube-prometheus-stack | kubectl apply --server-side -f -
  windlass install monitoring -o rules > /etc/prometheus/windlass.yaml
  windlass install monitoring -o dashboard > windlass.json
"""
NAME = "windlass-monitoring"
DASHBOARD_LABEL = {"grafana_dashboard": "1"}
"""What the sidecar of the usual Grafana chart looks for."""


@click.command("monitoring", epilog=EXAMPLES)
@default_option("-n", "--namespace", default="windlass-system", help="Where the scheduler runs.")
@click.option(
    "--label",
    "labels",
    type=Labels(),
    default=None,
    help="Labels of the objects: many Prometheuses read only those with release=NAME.",
)
@default_option(
    "-o",
    "--output",
    type=click.Choice(["objects", "rules", "dashboard", "counters"]),
    default="objects",
    help="Objects for Prometheus's operator and Grafana's sidecar, a rules file, the dashboard's JSON, or the "
    "exporter's counters file with everything that the alerts need.",
)
def install_monitoring(namespace: str, labels: dict[str, str] | None, output: str) -> None:
    """Print alerts, a PodMonitor for the scheduler and a Grafana dashboard. Nothing is applied.

    Needs dcgm-exporter, or the exporter of `windlass install node`; alerts about nodes need kube-state-metrics.
    """
    from windlass.cli.install import to_yaml
    from windlass.node.exporter.fields import DEFAULT_COUNTERS
    from windlass.telemetry.alert_rules import MORE_COUNTERS, rule_groups
    from windlass.telemetry.dashboard import dashboard

    if output == "counters":
        click.echo(DEFAULT_COUNTERS + MORE_COUNTERS, nl=False)
    elif output == "dashboard":
        click.echo(json.dumps(dashboard(), indent=2, ensure_ascii=False))
    elif output == "rules":
        click.echo(to_yaml([{"groups": rule_groups()}]), nl=False)
    else:
        click.echo(to_yaml(monitoring_objects(namespace, labels or {})), nl=False)


def monitoring_objects(namespace: str, labels: dict[str, str]) -> list[Unstructured]:
    from windlass.cli.install_crds import MANAGED_LABELS
    from windlass.cli.install_manifests import InstallOptions, managed_object, scheduler_role
    from windlass.telemetry.alert_rules import rule_groups
    from windlass.telemetry.dashboard import UID, dashboard

    own = {**MANAGED_LABELS, **labels}
    scheduler = scheduler_role(InstallOptions()).selector_labels
    operator = "monitoring.coreos.com/v1"
    endpoints = [{"port": "status", "interval": "30s"}]
    return [
        {
            **managed_object(operator, "PrometheusRule", NAME, own, namespace),
            "spec": {"groups": rule_groups()},
        },
        {
            **managed_object(operator, "PodMonitor", NAME, own, namespace),
            "spec": {"selector": {"matchLabels": scheduler}, "podMetricsEndpoints": endpoints},
        },
        {
            **managed_object("v1", "ConfigMap", NAME, {**own, **DASHBOARD_LABEL}, namespace),
            "data": {f"{UID}.json": json.dumps(dashboard(), ensure_ascii=False)},
        },
    ]
