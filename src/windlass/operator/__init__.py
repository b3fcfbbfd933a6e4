"""Brings GPU nodes up, changes fleets by canary with a way back, and takes broken GPUs out and heals them.

    informers ─► cache ─► Observed ─► decide(observed, now) ─► writes ─► apply
                                       (pure: `decide/`)                 (`apply.py`)

`kinds/` are the objects, `decide/` the rules, `controller.py` the loop. Nothing is remembered between two decisions but
what is written in objects, so that a replica may be killed at any moment.
"""
