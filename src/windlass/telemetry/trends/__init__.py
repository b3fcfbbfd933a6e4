"""Trends in what GPUs report: pure functions from series to findings, for `windlass trends` and `windlass node trends`.

No numpy, since the second runs on nodes. Gaps are unmeasured: a detector that lacks data says nothing.
"""
