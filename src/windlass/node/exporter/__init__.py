"""Prometheus metrics under dcgm-exporter's names, from the device back end, without DCGM.

`fields` lists the metrics, `counters` reads the user's counters file, `pod_resources` asks the kubelet which pod
holds which device, `collect` reads the hardware once, `prometheus_text` formats it, `metrics_server` answers
scrapes from the last collection.
"""
