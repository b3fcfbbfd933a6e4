"""Defragmentation: the cheapest moves of running pods that make room for a waiting workload.

Three callers: `windlass.defrag` (`plan defrag`), `proactive` (the policy of the engine) and `explain.move_offers`. The
README has the pipeline, the words and the files.
"""
