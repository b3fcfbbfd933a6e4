"""Decisions in time: planned starts for what waits, calendar reservations, and nobody who runs ahead at their cost.

    admit ─► holds ─► Starts (earliest start of each, in order) ─► walls ─► admit again, around the walls

`engine.decide_with_backfill` asks for plans (`planned`). As in Slurm's backfill, every workload that waits, in
the order in which it was decided, gets the earliest start that the known ends of running work allow; one behind it may
run now only if that delays none of these. A plan rests only on bounded run times: where no work that runs has a known
end and nothing is reserved, the first pass is the answer and nothing here has any effect.

| file | what is in it |
| --- | --- |
| `terms.py` | run-time limits, ends, the settings |
| `walls.py` | room that is spoken for, from when to when |
| `clock.py` | quota as it will be at a moment |
| `forecast.py` | what every node will have free at a moment |
| `profile.py` | the least that walls leave of it in a span of time |
| `fitting.py` | places for pods in what is free |
| `room.py` | the site as it will be at a moment: who has left, which walls stand, what fits |
| `starts.py` | the earliest start of a workload that waits |
| `calendar.py` | room for reservations |
| `guard.py` | refuses what would run into a wall; the site asks it before it places anything |
| `planned.py` | the start of everybody who waits, and who is delayed by one behind it |
| `words.py` | what a hold says about it |
"""
