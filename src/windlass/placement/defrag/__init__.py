"""Defragmentation: the cheapest moves of running pods that make room for what waits.

    movable     which pods may be moved, what that costs, where they may go
    demand      what waits, as pods that need a place
    shares      which device a share goes to
    clearing    which pods have to leave a node so that another fits there
    search      which moves, by branch and bound with a budget of steps
    bound       what no set of moves can stay below
    stage       the moves in an order in which each finds its room, tried on a second overlay
    exact       the same problem for CP-SAT (an extra)

`windlass.defrag` feeds it a snapshot and confirms each answer with `engine.decide`.
"""
