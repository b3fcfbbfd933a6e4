"""What people type: the `windlass` command.

`main` is the way in; each command lives in a module of its own that is imported only when it is called, so that
`windlass --version` and `--help` answer at once. Commands call the rooms below and never decide anything.
"""
