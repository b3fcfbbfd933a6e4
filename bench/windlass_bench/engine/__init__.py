"""`windlass bench engine`: how fast `decide` decides, on made-up clusters whose sizes the peers' benchmarks fix.

`synthetic_objects` makes the objects, `tasks` defines what is measured, `task_runner` runs each task in a process of
its own, `peers` holds what other projects have published, `report` puts both into tables. `cli.engine` calls it.
"""
