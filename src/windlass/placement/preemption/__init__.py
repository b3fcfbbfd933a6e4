"""Preemption by priority, for what is in no queue: lone pods and gangs.

    refused ─► Ground (freed resources per node) ─► slots (victims and a node for one pod) ─► gang: slot by slot

Kubernetes' rule of who may go: pods of strictly lower priority, whoever's they are, but no mirror pods and none of a
DaemonSet; nobody goes for a pod whose class never preempts. What is ours: victims are chosen together with the
placement that they make possible, whole gangs where one member is nothing without the others, extra members first, no
budget broken, and of several ways the one that touches the lowest priorities and there loses the least work.

| file | what is in it |
| --- | --- |
| `units.py` | what goes together when it goes, and what that loses |
| `ground.py` | freed resources by node, and which nodes could do at all |
| `choice.py` | the cheapest of the units on one node that make enough room |
| `slots.py` | a place for one pod with its victims, tried on the overlay |
| `alone.py` | a queue of lone pods, of which the refused ones may preempt |
| `together.py` | a gang on the site, within the domains that it may use |
| `context.py` | what holds for one decision: who may go, who goes already, for whom |
"""
