"""What this replica asks of its API server, as metrics. Where the meaning is client-go's, so is the name.

`scheduler.metrics` registers it; the numbers are those of `kube.request_budget`.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from windlass.kube.request_budget import ApiTraffic, RequestBudget


class ApiMetrics(Collector):
    def __init__(self, traffic: ApiTraffic, budget: RequestBudget) -> None:
        self._traffic, self._budget = traffic, budget

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "rest_client_requests", "Number of HTTP requests, by status code and method.", labels=("code", "method")
        )
        for (method, code), count in sorted(self._traffic.requests.items()):
            requests.add_metric((code, method), count)
        yield requests
        sizes = CounterMetricFamily(
            "windlass_api_bytes", "Bytes of request and response bodies, watches included.", labels=("direction",)
        )
        sizes.add_metric(("sent",), self._traffic.bytes_sent)
        sizes.add_metric(("received",), self._traffic.bytes_received)
        yield sizes
        yield GaugeMetricFamily("windlass_api_watches", "Open watches.", value=self._traffic.open_watches)
        waited = "Seconds for which requests have waited for the limit of --api-qps, added up."
        yield CounterMetricFamily("windlass_api_limited_seconds", waited, value=self._budget.seconds_waited)
