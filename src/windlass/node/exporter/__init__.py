"""Prometheus metrics under dcgm-exporter's names, from the device back end, without DCGM.

`fields` is the list of metrics, `counters` reads the user's counters file, `pods` asks the kubelet who uses what,
`collect` makes one pass over the hardware, `text` writes it, `server` answers scrapes out of the last pass.
"""
