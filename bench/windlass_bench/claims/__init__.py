"""What guides to GPU work on Kubernetes claim, checked on workloads that are fixed by a seed.

    tasks ─► stage ─► store ─► decide ─► plan ─┐        models: simulate.interference (latency on a shared GPU),
               ▲                               │                 allreduce (time of a collective)
               └───── carried out ◄────────────┘

Each claim is a module that makes a `Claim`: what is said, what was found, under which conditions it would hold, and the
tables behind it. Nothing here schedules: `stage` feeds the production store and `decide`, and carries its plans out.
`windlass bench claims` prints them.
"""
