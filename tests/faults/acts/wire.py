"""Acts between API server and clients: requests that fail or are held, and watches that break, lag or fall silent."""

import copy
import math

from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER
from tests.webhooks import BIND_WEBHOOK

from ..gangs import GangSpec
from ..judge.excuses import LONG_SEARCHES
from ..simulation import BRIEF_SECONDS, Simulation, happens

_KNOWN_SECONDS = 8.0
_SILENCE_SECONDS = 100.0
"""Longest time in seconds for which a dead connection may go unnoticed."""


class Wire(Simulation):
    """The steps of a random fault schedule that disturb requests and watches."""

    @happens
    def fault(self, fault: Fault) -> None:
        self.sandbox.faults.add(fault)

    @happens
    def hold_binds(self, name: str, nth: int) -> None:
        """Hold two binds of pods named ``name``, the ``nth`` and the one after it, until their sender is gone."""
        self.sandbox.faults.pause("bind", "pods", name=name, nth=nth, times=2, dry_run=False)

    @happens
    def refuse_for_good(self, spec: GangSpec, verb: str, status: int, retry_after: int | None) -> None:
        """Refuse requests of one kind about one gang for good, as a webhook or a quota does."""
        if verb == "bind" and self.has_unmatched_binds:
            self.match_binds()
        self.lasting.append(Fault(verb, "pods", f"{spec.base}-*", times=FOR_EVER, status=status, retry_after=retry_after, dry_run=None))
        self.sandbox.faults.add(self.lasting[-1])

    @happens
    def let_webhook_come(self, seconds: float, manner: str) -> None:
        """Let a webhook that matches binds come after ``seconds``, unless one has come or ``manner`` is "never".

        ``manner``: whether schedulers see it come, or their watch is "silent", or the webhooks are "unreadable".
        """

        def come() -> None:
            if not self.has_unmatched_binds:
                return
            if manner == "silent":
                self.silence("validatingwebhookconfigurations")
            if manner == "unreadable":
                self.sandbox.faults.add(Fault("list", "validatingwebhookconfigurations", times=FOR_EVER, status=403))
                self.compact()
            self.match_binds()

        if manner != "never":
            self.loop.call_later(seconds, come)

    @property
    def has_unmatched_binds(self) -> bool:
        """True while schedulers watch for webhooks, and none matches binds."""
        return self.judge.commits.dry_runs_from == math.inf

    @happens
    def match_binds(self) -> None:
        """Configure a webhook that matches binds. Schedulers know it a few seconds later, also if a watch is silent."""
        self.sandbox.create(copy.deepcopy(BIND_WEBHOOK))
        self.judge.commits.dry_runs_from = self.loop.time() + _KNOWN_SECONDS

    @happens
    def slow_down(self, seconds: float) -> None:
        """Make each search take ``seconds`` longer, until the world settles. Searches too long for the cycle run beside it."""
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
        """Forget the history, so that broken watches are answered 410."""
        self.judge.note("the history is forgotten")
        self.sandbox.compact()
        self.sandbox.drop_watches()

    @happens
    def expire_pages(self) -> None:
        """Let the next paged list expire between two pages."""
        self.judge.note("a list expires")
        self.sandbox.faults.add(Fault("list", "pods", nth=2, status=410, message="The provided continue parameter is too old"))
        self.sandbox.compact()
        self.sandbox.drop_watches("pods")

    @happens
    def silence(self, plural: str) -> None:
        """Let the open watches of a kind fall silent, without an error."""
        self.judge.note(f"watches of {plural} are silent", seconds=_SILENCE_SECONDS)
        for replica in self.replicas:
            replica.server.silence(plural)

    @happens
    def lag(self, plural: str, seconds: float) -> None:
        """Delay the watches of a kind by ``seconds``, until the world settles."""
        self._late.append(self.judge.note(f"watches of {plural} come late", seconds=FOR_EVER))
        self.network.lags[plural] = seconds
