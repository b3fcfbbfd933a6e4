"""`windlass bench engine`: how fast `decide` decides, on made-up clusters whose sizes the peers' benchmarks fix.

`scenes` makes the objects, `tasks` names what is measured, `measure` plays one task in a process of its own, `peers`
holds what others have published, `report` puts both into tables. `cli.engine` calls it.
"""
