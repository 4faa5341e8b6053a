"""Acts on the scheduler's processes: they are killed, stopped and started, also at a given request."""

import asyncio
from collections.abc import Callable

from ..simulation import Simulation

_ON_ITS_WAY_SECONDS = 0.5


class Processes(Simulation):
    """A simulation with acts on the scheduler's processes."""

    def kill_all(self) -> None:
        """Kill all replicas; ``start_all`` starts them again."""

        async def die() -> None:
            for replica in self.replicas:
                self._note_end("the scheduler is killed", replica)
                victim, replica.app = replica.app, None
                replica.server.sever()
                if victim is not None:
                    self._keep(asyncio.ensure_future(victim.stop()))

        self.run(die())

    def start_all(self) -> None:
        """Start all replicas that were killed."""

        async def start() -> None:
            for replica in self.replicas:
                await self._start(replica)

        self.run(start())

    def restart(self, down_seconds: float = 0.0) -> None:
        """Shut the leader down as Kubernetes does, and start it again after ``down_seconds``."""

        async def again() -> None:
            replica = self.leader
            if replica is None or replica.app is None:
                return  # it is down, and about to be started
            victim, replica.app = replica.app, None
            self._note_end("the scheduler is stopped", replica, down_seconds)
            began = self.loop.time()
            await victim.stop()
            self.judge.stopped(replica.server.process, began)
            await asyncio.sleep(down_seconds)
            await self._start(replica)

        self.run(again())

    def stall(self, seconds: float) -> None:
        """Stop the leader in the middle of its work for ``seconds``, as SIGSTOP does."""

        async def begin() -> None:
            self._keep(asyncio.ensure_future(self._stall(seconds)))

        self.run(begin())

    def stall_at(self, verb: str, resource: str, nth: int, *, after: bool, seconds: float) -> None:
        """Stop the leader for ``seconds`` at the ``nth`` request of a kind from now; that request arrives when the leader goes on."""
        hold = self.sandbox.faults.pause(verb, resource, nth=nth, after=after)

        async def wait() -> None:
            await hold.arrived()
            await self._stall(seconds)
            hold.release()

        async def begin() -> None:
            self._keep(asyncio.ensure_future(wait()))

        self.run(begin())

    def act_at(self, verb: str, nth: int, act: Callable[[], None], *, after: bool, is_dry_run: bool | None) -> None:
        """Call ``act`` while the ``nth`` request of a kind from now is in flight; then the request goes on."""
        hold = self.sandbox.faults.pause(verb, "*", nth=nth, after=after, dry_run=is_dry_run)

        async def wait() -> None:
            await hold.arrived()
            act()
            await asyncio.sleep(_ON_ITS_WAY_SECONDS)
            hold.release()

        async def begin() -> None:
            self._keep(asyncio.ensure_future(wait()))

        self.run(begin())

    def crash(self, down_seconds: float = 0.0) -> None:
        """Kill the leader, and start it again after ``down_seconds``."""
        self.run(self._crash(down_seconds))

    def crash_at(self, verb: str, resource: str, nth: int, *, after: bool, down_seconds: float = 0.0) -> None:
        """Kill the leader at the ``nth`` request of a kind from now, before the request is carried out or ``after``."""
        hold = self.sandbox.faults.pause(verb, resource, nth=nth, after=after)

        async def wait() -> None:
            await hold.arrived()
            await self._crash(down_seconds)

        async def begin() -> None:
            self._keep(asyncio.ensure_future(wait()))

        self.run(begin())

    async def _stall(self, seconds: float) -> None:
        if (leader := self.leader) is not None:
            server = leader.server
            self.judge.note("the leader stands still", process=server.process, seconds=seconds)
            server.stall()
            await asyncio.sleep(seconds)
            server.go_on()
