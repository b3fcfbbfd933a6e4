"""Diagnosis: evidence in, verdict, fix and patch out.

`cli` hands over what it read from a dump (later from a live cluster); `why` answers with a `Diagnosis`. Whether a pod
fits is asked of the engine's own filters; logs, events and conditions add what objects can't show.
"""
