"""Random worlds: whatever fails, whoever interferes and wherever the operator is killed, the invariants hold.

`judge.py` looks at every write. The same world without a kill must end in the same phase, on the same drivers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.operator.play import CHANGE, Play, fleet, is_up
from tests.operator.world import SimNode, World

from windlass.model.node import Taint
from windlass.operator.decide import decide
from windlass.operator.kinds.fleet_change import FINAL_PHASES
from windlass.operator.writes import CreateObject, Write

SEEDS = st.integers(0, 2**32)
ONCE = (Phase.explicit, Phase.generate)
"""A seed is not made smaller: another one is another world."""
FOREIGN = Taint(key="example.com/other", effect="PreferNoSchedule", value="x")


class Plan:
    """What happens in one world; drawn once, so that it can be played twice."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.count = random.randint(3, 14)
        self.limit = random.choice([1, 2, 3, "30%"])
        self.waves = random.choice([CHANGE["waves"], [{"nodes": 1, "bake": "5m"}, {"nodes": "100%", "bake": "1m"}]])
        self.max_failed = random.choice([0, 1, "50%"])
        self.bad = {random.randrange(self.count) for _ in range(random.choice([0, 0, 1, 2]))}
        self.xid = {random.randrange(self.count) for _ in range(random.choice([0, 0, 1, 2]))}
        self.xid_after = random.randint(10, 900)
        self.ill = [
            (
                random.randrange(self.count),
                random.randrange(8),
                random.randint(0, 3000),
                random.choice(["reset", "reboot", "ticket"]),
                random.choice(["reset", "reboot", "nothing"]),
            )
            for _ in range(random.randint(0, 3))
        ]
        self.cordoned = {random.randrange(self.count) for _ in range(random.choice([0, 0, 1]))}
        self.pods = {(random.randrange(self.count), random.randrange(8)) for _ in range(random.randint(0, 6))}
        self.gang = random.random() < 0.5
        verbs = ["Promote", "Abort", "Rollback", "Retry", "pause", "resume"]
        self.verbs = [(random.randint(0, 6000), random.choice(verbs)) for _ in range(random.choice([0, 1, 2, 3]))]
        self.second_change_at = random.randint(0, 4000)
        self.order = random.choice(["as decided", "reversed"])
        self.kill_rate = random.choice([0, 2, 3, 7])

    def world(self) -> World:
        world = fleet(self.count, maxUnavailable=self.limit, repair={"ticket": {"url": "https://t.example.com"}})
        names = sorted(world.nodes)
        for number in self.bad:
            world.nodes[names[number]].bad_versions = frozenset({"590.44.01"})
        for name in names:
            world.nodes[name].taints = (FOREIGN,)
            world.nodes[name].labels["example.com/label"] = "theirs"

        def loaded(world: World, node: SimNode) -> None:
            if node.loaded == "590.44.01" and names.index(node.name) in self.xid:
                world.later(self.xid_after, lambda: world.fail_gpu(node.name, 1, "Xid 119"))

        world.on_loaded = loaded
        return world

    def begin(self, world: World) -> None:
        """When the nodes are up."""
        names = sorted(world.nodes)
        for number in self.cordoned:
            _cordon(world, names[number], True)
            world.later(5000, partial(_cordon, world, names[number], False))
        for number, (node, device) in enumerate(sorted(self.pods)):
            world.add_pod(f"team/p{number}", names[node], {device}, "team/gang" if self.gang else "")
        spec = CHANGE | {"waves": self.waves, "maxFailed": self.max_failed}
        world.add("FleetChange", "r590", spec)
        world.later(
            self.second_change_at, lambda: world.add("FleetChange", "second", spec | {"driver": {"version": "9"}})
        )
        for node, device, at, action, heals_by in self.ill:
            world.later(at, lambda n=names[node], d=device, a=action, h=heals_by: world.fail_gpu(n, d, "Xid 79", a, h))  # type: ignore[misc]
        for number, (at, verb) in enumerate(self.verbs):
            world.later(at, lambda number=number, verb=verb: _command(world, str(number), verb))  # type: ignore[misc]


def _cordon(world: World, name: str, cordoned: bool) -> None:
    """Another person does."""
    world.nodes[name].unschedulable = cordoned
    world.nodes[name].version += 1


def _command(world: World, identity: str, verb: str) -> None:
    if verb in ("pause", "resume"):
        world.put_spec("FleetChange", "r590", paused=verb == "pause")
    else:
        world.put_spec("FleetChange", "r590", command={"id": identity, "verb": verb})


def has_begun(world: World) -> bool:
    return all(
        name in world.objects["GPUNode"] and world.gpu_node(name).status.phase == "Ready" and node.taints == (FOREIGN,)
        for name, node in world.nodes.items()
    )


def played(plan: Plan, kill: Callable[[int], bool]) -> Play:
    world = plan.world()
    play = Play(world, kill=kill)
    if plan.order == "reversed":
        play.order = lambda writes: writes[::-1]
    play.run(lambda: has_begun(world), 7200)
    assert has_begun(world)
    plan.begin(world)
    play.run(seconds=6001)  # by then everything that was planned has happened
    play.run(lambda: is_over(world), 24 * 3600)
    if world.change("r590").spec.paused:
        world.put_spec("FleetChange", "r590", paused=False)
        play.run(lambda: is_over(world), 24 * 3600)
    return play.run(seconds=1200)


def is_over(world: World) -> bool:
    """No change and no repair goes on by itself."""
    waiting = ("Returned", "Ticket", "Held")
    return all(change.is_final or change.spec.paused for change in world.objects["FleetChange"].values()) and all(
        repair.status.phase in waiting or repair.status.reason == "BreakerOpen"
        for repair in world.objects["GPURepair"].values()
    )


@settings(max_examples=25, deadline=None, derandomize=True, phases=ONCE)
@given(SEEDS)
def test_every_invariant_holds_and_every_change_ends(seed: int) -> None:
    check_seed(seed)


def check_seed(seed: int) -> None:
    plan = Plan(seed)
    chance = Random(seed)
    play = played(plan, lambda number: bool(plan.kill_rate) and not chance.randrange(plan.kill_rate))
    world = play.world
    for change in world.objects["FleetChange"].values():
        assert change.status.phase in FINAL_PHASES, change.status
    assert len(world.tickets) == len(set(world.tickets))
    for name, node in world.nodes.items():
        record = world.gpu_node(name).status.change
        assert record is None or record.result
        if world.change("r590").status.phase == "RolledBack" and node.loaded and name not in world.objects["GPURepair"]:
            assert node.loaded != "590.44.01"
    # Nothing is written any more, and no decision differs from the one before.
    assert decide(world.observe(), world.now).writes == ()


@settings(max_examples=8, deadline=None, derandomize=True, phases=ONCE)
@given(SEEDS)
def test_a_kill_before_any_write_leads_to_the_same_end(seed: int) -> None:
    plan = Plan(seed)
    plan.verbs, plan.ill = [], []
    plan.second_change_at = 0
    calm = played(plan, lambda number: False)
    at = 1 + seed % max(1, calm.writes)
    killed = played(plan, lambda number: number == at)
    assert summary(killed.world) == summary(calm.world)


class TwoReplicas(Play):
    """A second replica, which was the leader a moment ago, writes what it decided on older objects in between."""

    chance = Random(0)
    late: tuple[Write, ...] = ()

    def settle(self) -> int:
        self._write_late(self.late)  # decided some time ago, and only now on its way
        seen, now = self.world.observe(), self.world.now
        wake = super().settle()
        self._write_late(decide(seen, now).writes)
        if self.chance.random() < 0.3:
            self.late = decide(seen, now).writes
        return min(wake, self.world.now + 30)

    def _write_late(self, writes: tuple[Write, ...]) -> None:
        for write in writes:
            if self.chance.random() < 0.5:
                continue
            if isinstance(write, CreateObject):
                self.world.apply(write)  # a repair of what is well by now: it ends at once
            else:
                self.judge.apply(write)


@settings(max_examples=8, deadline=None, derandomize=True, phases=ONCE)
@given(SEEDS)
def test_a_replica_that_writes_on_old_objects_breaks_no_invariant(seed: int) -> None:
    plan = Plan(seed)
    world = plan.world()
    play = TwoReplicas(world)
    play.chance = Random(seed)
    play.run(lambda: has_begun(world), 7200)
    plan.begin(world)
    play.run(seconds=6001)
    play.run(lambda: is_over(world), 24 * 3600)
    if world.change("r590").spec.paused:
        world.put_spec("FleetChange", "r590", paused=False)
        play.run(lambda: is_over(world), 24 * 3600)
    assert all(change.status.phase in FINAL_PHASES for change in world.objects["FleetChange"].values())
    assert len(world.tickets) == len(set(world.tickets))


def summary(world: World) -> object:
    changes = {name: change.status.phase for name, change in world.objects["FleetChange"].items()}
    return changes, {name: (node.loaded, node.taints) for name, node in world.nodes.items()}


def test_is_up_is_about_taints_too() -> None:
    """The harness itself: a node with a foreign taint is not `is_up`, which other tests rely on."""
    world = fleet(1)
    Play(world).run(lambda: is_up(world))
    world.nodes["gpu-000"].taints = (FOREIGN,)
    assert not is_up(world)
