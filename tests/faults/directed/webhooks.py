"""Schedules on webhooks that match binds: binds are dry-run where such a webhook may refuse them, and not elsewhere."""

from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER
from tests.faults.gangs import GangSpec
from tests.faults.world import World, demand

from .ground import NEVER, end, quiet_world

_KNOWN_SECONDS = 10.0


def no_webhook() -> None:
    """No webhook matches binds: gangs of all kinds are bound, and no bind is dry-run."""
    with quiet_world(watches_admission=True) as world:
        world.add(GangSpec("made", size=4, minimum=4))
        world.add(GangSpec("bare", "bare", size=3, minimum=3))
        world.add(GangSpec("job", "job", size=3, minimum=2, has_group=True))
        world.advance(5)
        demand(["[dry run] a bind was dry-run, and no webhook matches binds"] if _dry_runs(world) else [])
        end(world)


def webhook_known() -> None:
    """A webhook refuses a bare member for good, whichever it is, and was known before the gang: no pod is bound."""
    for refused in range(3):
        with quiet_world(watches_admission=True) as world:
            world.match_binds()
            _end_without_binds(world, f"gang-{refused}")


def webhooks_unreadable() -> None:
    """The scheduler may not read webhooks: one refuses a bare member, and no pod is bound."""
    with quiet_world(watches_admission=True) as world:
        world.fault(Fault("list", "validatingwebhookconfigurations", times=FOR_EVER, status=403))
        world.match_binds()
        world.crash(1)
        _end_without_binds(world, "gang-1")


def webhook_watch_silent() -> None:
    """The watch of webhooks falls silent, and then a webhook refuses a bare member: no pod is bound."""
    with quiet_world(watches_admission=True) as world:
        world.silence("validatingwebhookconfigurations")
        world.match_binds()
        _end_without_binds(world, "gang-1")


def webhook_between_look_and_bind() -> None:
    """A webhook that refuses one member appears while the binds are on their way: the bound members are released."""
    for nth in range(1, 5):
        with quiet_world(startup_delay=NEVER, watches_admission=True) as world:

            def appear(world: World = world) -> None:
                world.match_binds()
                _refuse(world, "gang-*", nth=2)

            world.act_at("bind", nth, appear, after=False, is_dry_run=False)
            world.add(GangSpec("gang", size=4, minimum=4))
            world.advance(40)
            world.judge.check()
            end(world)


def _end_without_binds(world: World, refused: str) -> None:
    """Let a webhook that schedulers have had time to know refuse the bare member ``refused``, and check that no member is bound."""
    world.advance(_KNOWN_SECONDS)
    _refuse(world, refused)
    gang = GangSpec("gang", "bare", size=3, minimum=3)
    world.add(gang)
    world.advance(10)
    demand(["[quorum] a part of the gang is bound"] if world.judge.bound(gang) else [])
    end(world)


def _refuse(world: World, name: str, nth: int = 1) -> None:
    world.fault(Fault("bind", "pods", name, nth=nth, times=FOR_EVER, status=403, message="denied by a webhook", dry_run=None))


def _dry_runs(world: World) -> int:
    return sum(each.verb == "bind" and each.is_dry_run for each in world.judge.books.requests)
