"""What people type: the `windlass` command.

`main` is the entry point. Each command is a module that is imported when it is called, so that `windlass --version`
and `--help` are fast. Commands call the packages below and contain no decisions.
"""
