"""The project's benchmarks: what `windlass bench` measures, and the published numbers that it measures against.

Plays traces through `simulate` as any user would, and reports tables: `cli.bench` prints them.
"""
