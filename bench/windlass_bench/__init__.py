"""The benchmarks of Windlass: what `windlass bench` measures, and the published numbers that it measures against.

A distribution of its own (windlass-bench). It runs traces through `windlass.simulate` as any user would and reports
tables; `windlass_bench.cli` prints them, and `windlass.cli.main` has `bench` where this package is installed.
"""

__version__ = "0.1.0"
