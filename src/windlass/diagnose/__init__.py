"""Diagnosis: evidence in, verdict, fix and patch out.

`cli` collects evidence from a dump or a live cluster; `why` answers with a `Diagnosis`. The engine's own filters decide
whether a pod fits; logs, events and conditions add what objects can't show.
"""
