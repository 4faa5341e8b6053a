"""What happens between the API server and its clients: requests that fail or are held, watches that end, lag or fall silent."""

from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER

from ..gangs import GangSpec
from ..judge.excuses import LONG_SEARCHES
from ..simulation import BRIEF_SECONDS, Simulation, happens

_SILENCE_SECONDS = 100.0
"""How long a dead connection may go unnoticed, at the longest."""


class Wire(Simulation):
    """A simulation to which this can happen."""

    @happens
    def fault(self, fault: Fault) -> None:
        self.sandbox.faults.add(fault)

    @happens
    def hold_binds(self, name: str, nth: int) -> None:
        """The ``nth`` bind of pods of that name, and the next, are on their way until whoever has sent them is no more."""
        self.sandbox.faults.pause("bind", "pods", name=name, nth=nth, times=2, dry_run=False)

    @happens
    def sicken(self, spec: GangSpec, verb: str, status: int, retry_after: int | None) -> None:
        """A webhook or a quota refuses one thing of one gang for good."""
        self.lasting.append(Fault(verb, "pods", f"{spec.base}-*", times=FOR_EVER, status=status, retry_after=retry_after, dry_run=None))
        self.sandbox.faults.add(self.lasting[-1])

    @happens
    def slow_down(self, seconds: float) -> None:
        """Searches take so much longer; those that are too long for the cycle are made beside it, until things settle."""
        if seconds >= BRIEF_SECONDS:
            self._late.append(self.judge.note(LONG_SEARCHES, seconds=FOR_EVER))
        for replica in self.replicas:
            if replica.searcher is not None:
                replica.searcher.slowness = seconds

    @happens
    def drop_watches(self, resource: str | None = None) -> None:
        self.judge.note("watches break")
        self.sandbox.drop_watches(resource)

    @happens
    def compact(self) -> None:
        """The history is forgotten: watches that break now are answered 410."""
        self.judge.note("the history is forgotten")
        self.sandbox.compact()
        self.sandbox.drop_watches()

    @happens
    def expire_pages(self) -> None:
        """The next list that comes in pages expires in the middle of it."""
        self.judge.note("a list expires")
        self.sandbox.faults.add(Fault("list", "pods", nth=2, status=410, message="The provided continue parameter is too old"))
        self.sandbox.compact()
        self.sandbox.drop_watches("pods")

    @happens
    def silence(self, plural: str) -> None:
        """The connections of the open watches of a kind are dead, and nobody says so."""
        self.judge.note(f"watches of {plural} are silent", seconds=_SILENCE_SECONDS)
        for replica in self.replicas:
            replica.server.silence(plural)

    @happens
    def lag(self, plural: str, seconds: float) -> None:
        """Watches of a kind come late, until the weather clears."""
        self._late.append(self.judge.note(f"watches of {plural} come late", seconds=FOR_EVER))
        self.weather.lags[plural] = seconds
