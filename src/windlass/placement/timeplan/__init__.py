"""Planned starts of waiting workloads, backfill around them, and calendar reservations.

`engine.decide_with_backfill` makes a `start_planner.StartPlanner` for each decision. The README has the pipeline, the
words and the files.
"""
