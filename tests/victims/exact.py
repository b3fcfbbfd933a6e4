"""The least that an eviction has to lose, found by CP-SAT: a second, declarative account of who may be evicted.

It shares no code with the engine. Classes of victims come first, as `placement/preemption/README.md` says: nothing of a
dearer class is lost where a cheaper class would do, and within a class the fewest GPU-seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ortools.sat.python import cp_model
from tests.victims.draw_world import HOST, NOW, OWN, Member, Running, VictimWorld

IN_COHORT, IN_QUEUE, BY_PRIORITY = 0, 1, 2
"""Borrowers of other queues go first, then the own queue's, and last what is in no queue."""
VictimClass = tuple[int, int]
"""The number of the class, and the priority."""
Loss = dict[VictimClass, int]
"""Milli-GPU-seconds by class."""


class Piece(NamedTuple):
    """What is evicted as a whole: a pod, the minimum of a gang, or one member above it."""

    owner: Running
    members: tuple[Member, ...]
    is_above_minimum: bool
    key: VictimClass

    @property
    def gpu_milli(self) -> int:
        return sum(member.gpu_milli for member in self.members)

    @property
    def cost(self) -> int:
        return self.gpu_milli * self.owner.seconds_lost


def candidates(world: VictimWorld) -> list[Piece]:
    """Everything that may be evicted at all for what is asking."""
    return [piece for running in world.running for piece in _pieces(world, running)]


def _pieces(world: VictimWorld, running: Running) -> list[Piece]:
    if not _may_be_evicted(world, running):
        return []
    key = victim_class(world, running)
    return [
        Piece(running, running.members[: running.minimum], False, key),
        *(Piece(running, (member,), True, key) for member in running.members[running.minimum :]),
    ]


def victim_class(world: VictimWorld, running: Running) -> VictimClass:
    if not world.asking.queue or not running.queue:
        return BY_PRIORITY, running.priority
    return (IN_QUEUE if running.queue == OWN else IN_COHORT), running.priority


def used(world: VictimWorld, queue: str) -> int:
    return sum(member.gpu_milli for one in world.running if one.queue == queue for member in one.members)


def asked(world: VictimWorld) -> int:
    return world.asking.pods * world.asking.gpus * world.asking.milli


def _may_be_evicted(world: VictimWorld, running: Running) -> bool:
    asking, policy = world.asking, world.policy
    is_lower = running.priority < asking.priority
    if not asking.queue or not running.queue:
        return is_lower
    rule = policy.within_queue if running.queue == OWN else policy.reclaim
    if running.queue != OWN and used(world, running.queue) <= world.nominal[running.queue] * 1000:
        return False
    is_newer = running.priority == asking.priority and NOW - running.age > NOW - asking.age
    return rule == "Any" or (rule != "Never" and is_lower) or (rule == "LowerOrNewerEqualPriority" and is_newer)


class ExactVictims:
    def __init__(self, world: VictimWorld) -> None:
        self.world = world
        self.pieces = candidates(world)
        self.model = cp_model.CpModel()
        self.gone = [self.model.new_bool_var(f"gone{number}") for number in range(len(self.pieces))]
        self.chosen = [self.model.new_bool_var(f"chosen{number}") for number in range(len(self.pieces))]
        self._gangs_go_whole()
        self._keep_budgets()
        self._place()
        if world.asking.queue:
            self._keep_quota()

    def least_loss(self) -> Loss | None:
        """By class; empty where nothing has to go, None where nothing helps."""
        found: Loss = {}
        keys = sorted({piece.key for piece in self.pieces}, reverse=True)
        if not keys:
            return {} if self._solve(0) is not None else None
        for key in keys:
            lost = sum(
                piece.cost * gone for piece, gone in zip(self.pieces, self.gone, strict=True) if piece.key == key
            )
            least = self._solve(lost)
            if least is None:
                return None
            self.model.add(lost <= least)
            if least:
                found[key] = least
        return found

    def _solve(self, objective: cp_model.LinearExprT) -> int | None:
        self.model.minimize(objective)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return None
        assert status == cp_model.OPTIMAL
        return round(solver.objective_value)

    def _gangs_go_whole(self) -> None:
        """Members above the minimum are chosen themselves, or go because the minimum does."""
        for number, piece in enumerate(self.pieces):
            causes = [self.chosen[number]]
            if piece.is_above_minimum:
                minimum = next(i for i, other in enumerate(self.pieces) if other.owner is piece.owner)
                causes.append(self.chosen[minimum])
            self.model.add_max_equality(self.gone[number], causes)

    def _keep_budgets(self) -> None:
        for name, allowed in self.world.budgets.items():
            covered = [len(piece.members) if piece.owner.budget == name else 0 for piece in self.pieces]
            self.model.add(self._total(covered) <= allowed)

    def _total(self, amounts: Sequence[int]) -> cp_model.LinearExprT:
        """Over the pieces that go."""
        return sum(amount * gone for amount, gone in zip(amounts, self.gone, strict=True))

    def _place(self) -> None:
        asking, model = self.world.asking, self.model
        held = {(member.node, d): 0 for one in self.world.running for member in one.members for d in member.devices}
        for one in self.world.running:
            for member in one.members:
                for device in member.devices:
                    held[member.node, device] += member.milli
        pods = {}
        for name, (_, gpus) in self.world.nodes.items():
            pods[name] = model.new_int_var(0, asking.pods, f"pods-{name}")
            shares = []
            for device in range(gpus):
                shares.append(model.new_int_var(0, 1000 // asking.milli, ""))
                freed = self._total([_freed(piece, name, device) for piece in self.pieces])
                model.add(shares[-1] * asking.milli <= 1000 - held.get((name, device), 0) + freed)
            model.add(sum(shares) == pods[name] * asking.gpus)
        model.add(sum(pods.values()) == asking.pods)
        if asking.topology:
            domains = {name: name if asking.topology == HOST else rack for name, (rack, _) in self.world.nodes.items()}
            chosen = {domain: model.new_bool_var(domain) for domain in sorted(set(domains.values()))}
            model.add_exactly_one(chosen.values())
            for name, domain in domains.items():
                model.add(pods[name] <= asking.pods * chosen[domain])

    # Quota

    def _keep_quota(self) -> None:
        world, model = self.world, self.model
        total = sum(world.nominal.values()) * 1000
        in_use = sum(used(world, queue) for queue in world.nominal)
        freed = self._total([piece.gpu_milli if piece.owner.queue else 0 for piece in self.pieces])
        model.add(in_use - freed + asked(world) <= total)
        if in_use + asked(world) > total and not self._may_take_quota():
            model.add_bool_or([])
        own_freed = self._total([piece.gpu_milli if piece.owner.queue == OWN else 0 for piece in self.pieces])
        beyond = used(world, OWN) + asked(world) - world.nominal[OWN] * 1000
        above = model.new_int_var(0, max(0, beyond), "own-share")
        if world.is_fair:
            # Who stays within its own quota takes back what it lent, whatever the shares are.
            model.add(above >= (beyond if beyond > 0 else 0) - own_freed)
        elif beyond > 0:
            self._keep_out_of_debt(beyond - own_freed)
        for queue in world.nominal:
            if queue != OWN:
                self._keep_nominal(queue, above)

    def _may_take_quota(self) -> bool:
        """Kueue: who asks for more than its queue owns takes no quota from others, unless the policy allows that to one
        who borrows; a queue that owns nothing may take its own."""
        nominal, policy = self.world.nominal[OWN] * 1000, self.world.policy
        rules = (policy.within_queue, policy.reclaim)
        if asked(self.world) <= nominal or policy.borrow != "Never" or (not nominal and rules[0] != "Never"):
            return True
        return self.world.is_fair and rules != ("Never", "Never")

    def _keep_nominal(self, queue: str, above: cp_model.IntVar) -> None:
        """A queue gives only what it has borrowed: before its last victim goes it still borrows, and under fair
        sharing more than the preemptor will."""
        model = self.model
        indices = [number for number, piece in enumerate(self.pieces) if piece.owner.queue == queue]
        last = {number: model.new_bool_var(f"last{number}") for number in indices}
        for number, flag in last.items():
            model.add_implication(flag, self.chosen[number])
            model.add_implication(self.chosen[number], _any(model, list(last.values())))
        model.add_at_most_one(last.values())
        freed = sum(self.pieces[number].gpu_milli * self.chosen[number] for number in indices)
        back = sum(self.pieces[number].gpu_milli * flag for number, flag in last.items())
        borrowed = used(self.world, queue) - self.world.nominal[queue] * 1000
        for flag in last.values():
            model.add(borrowed - freed + back >= above + 1).only_enforce_if(flag)

    def _keep_out_of_debt(self, beyond: cp_model.LinearExprT) -> None:
        """Victims of other queues that the policy doesn't allow to one who borrows: only if it doesn't."""
        world, policy = self.world, self.world.policy
        protected = [
            gone
            for piece, gone in zip(self.pieces, self.gone, strict=True)
            if piece.key[0] == IN_COHORT
            and (
                policy.borrow == "Never"
                or piece.owner.priority >= world.asking.priority
                or (policy.threshold is not None and piece.owner.priority > policy.threshold)
            )
        ]
        # Kueue: whoever borrows already, and may not preempt while borrowing, doesn't try to do without.
        if policy.borrow == "Never" and used(world, OWN) >= world.nominal[OWN] * 1000:
            self.model.add(sum(protected) == 0)
        for gone in protected:
            self.model.add(beyond <= 0).only_enforce_if(gone)


def _any(model: cp_model.CpModel, flags: Sequence[cp_model.IntVar]) -> cp_model.IntVar:
    found = model.new_bool_var("")
    model.add_max_equality(found, flags)
    return found


def _freed(piece: Piece, node: str, device: int) -> int:
    return sum(member.milli for member in piece.members if member.node == node and device in member.devices)
