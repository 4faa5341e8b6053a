"""Holds the judge's records: objects over time, requests, what schedulers have received, faults and foreign actions.

Everything comes from the API's history and from the wire: objects as they were written, requests as they arrived, lines of watches as they
were delivered. Nothing is taken from the scheduler's memory, logs or reports.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from tests.faults.gangs import POD_GROUP_LABEL, GangSpec, workload_name
from tests.stories import MINIMUM, NAME

from .entries import Deed, GangName, Request
from .facts import Body, capacity_of, is_alive, name_of, node_of, owner_of, phase_of, role_of, uid_of, with_assignments
from .news import History, News

IN_FLIGHT_SECONDS = 90.0
"""Seconds after it was sent in which a request may still be carried out."""
Accuse = Callable[[str, str], None]
"""A function that records an accusation, given the name of the broken rule and what happened."""

NO_END = 1_000_000
"""Stands for any number of pods: more than any controller makes."""
OURS = "allaboard"
ATTEMPTS = 4
"""The number of tries of a bind if each answer is an error that may pass."""
_TRANSIENT = (429, 500, 503, 504)
REFUSALS = (400, 403, 422)
"""Statuses of a bind that is refused for good."""
NEWS_SECONDS = 3.0
"""Seconds until a scheduler has received an edit; until then it may act on the state before."""
DELETION_SECONDS = 70.0
"""Seconds until a scheduler knows that a PodGroup is gone, at the latest from its own resync."""
HEEDED_SECONDS = 0.05
"""Seconds a scheduler needs to act on an event: a request must take account of all events that were received earlier than that."""
STALE_SECONDS = 12.0
"""Greatest age in seconds of the state that a request may rest on: ``stale_seconds``, and the time of a search."""
RETRY_SECONDS = 20.0
STOP_SECONDS = 9.0
"""Seconds, at least, that a process which shuts down waits for the answers to its requests."""


@dataclass(slots=True)
class Books:
    """The records of one cluster. Times are those of ``clock``, in seconds."""

    gangs: list[GangSpec]
    clock: Callable[[], float]
    horizon: float = 400.0
    """Seconds after which requests, deeds and deleted pods are forgotten."""
    objects: dict[str, dict[tuple[str, str], Body]] = field(default_factory=dict)
    """The present objects: by plural, and then by namespace and name."""
    claims_changed_at: float = -math.inf
    """The time at which a claim was last written."""
    requests: deque[Request] = field(default_factory=deque)
    struck: deque[Request] = field(default_factory=deque)
    """Requests that a fault has hit. They are few, and rules search them often."""
    _about: dict[tuple[str, str], deque[Request]] = field(default_factory=dict)
    """Requests by plural and name of their object."""
    _tries: dict[tuple[str, str], list[Request]] = field(default_factory=dict)
    """Binds and dry runs, by sending process and the pod's UID."""
    deeds: list[Deed] = field(default_factory=list)
    minima: dict[GangName, list[tuple[float, int | None]]] = field(default_factory=dict)
    """The minimums that each PodGroup has stated, with the time of each; None from its deletion on."""
    gone: dict[tuple[str, str], Body] = field(default_factory=dict)
    """The last deleted pod of each name."""
    gone_nodes: dict[str, Body] = field(default_factory=dict)
    """The last seen node of each name."""
    created_at: dict[str, float] = field(default_factory=dict)
    """When each pod, PodGroup and disruption budget was created, by its UID."""
    apps: dict[str, str] = field(default_factory=dict)
    """Namespace and ``app`` label of each pod, by its UID: pods of one controller and role share them."""
    roles: dict[str, str] = field(default_factory=dict)
    """The role that each pod names, by its UID."""
    written: dict[str, float] = field(default_factory=dict)
    """When each pod was last written to, by its UID."""
    shrunk: set[str] = field(default_factory=set)
    """Nodes that offer less than they once did."""
    _pruned: float = 0.0
    moved: float = 0.0
    """When a pod or node last came, went, was bound or changed its requests or allocatable."""
    free_changed: float = 0.0
    """When the free capacity of a node last changed."""
    freed: float = 0.0
    """When capacity was last freed."""
    _freed: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=16))
    _moves: dict[GangName | None, float] = field(default_factory=dict)
    _named: dict[tuple[str, str, str], dict[tuple[str, str], Body]] = field(default_factory=dict)
    """The present pods by the namespace, key and value of each label that names their gang, and then by namespace and name."""
    successes: dict[str, set[str]] = field(default_factory=dict)
    """The pods of each controller that have succeeded, by UID of both."""
    _made_by: dict[tuple[str, str], GangSpec | None] = field(default_factory=dict)
    """By namespace and name of a pod: the gang to which the last such pod belonged."""
    history: History = field(default_factory=dict)
    """The history of pods and nodes."""
    news: News = field(init=False)
    """The part of ``history`` that schedulers have received."""

    def __post_init__(self) -> None:
        self.news = News(self.clock, self.history)

    # The present state.

    def pods(self) -> Iterator[Body]:
        """Return all pods."""
        return iter(self.objects.get("pods", {}).values())

    @property
    def nodes(self) -> dict[str, Body]:
        """All nodes by name."""
        return {name: node for (_, name), node in self.objects.get("nodes", {}).items()}

    def get(self, plural: str, namespace: str, name: str) -> Body | None:
        """Return an object as it is now; None if it doesn't exist."""
        return self.objects.get(plural, {}).get((namespace, name))

    def gang_of(self, pod: Body) -> GangSpec | None:
        """Return the gang that a pod belongs to; None if it is not one of ``gangs``."""
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        name = labels.get(POD_GROUP_LABEL) or labels.get(NAME) or str(metadata.get("name")).rpartition("-")[0]
        is_single = not (POD_GROUP_LABEL in labels or NAME in labels)
        named = [spec for spec in self.gangs if (spec.namespace, spec.name, spec.is_single) == (metadata.get("namespace"), name, is_single)]
        return named[0] if len(named) == 1 else next((spec for spec in named if spec.has_made(pod)), None)

    def is_shared(self, gang: GangSpec) -> bool:
        """Return whether several submissions use the name of a gang."""
        return sum((spec.namespace, spec.name) == (gang.namespace, gang.name) for spec in self.gangs) > 1

    def gang_of_job(self, job: Body) -> GangSpec | None:
        """Return the gang that the pods of a Job name."""
        owners = [{"name": name_of(job)}]
        metadata = {**(job["spec"]["template"].get("metadata") or {}), "namespace": job["metadata"]["namespace"], "name": name_of(job)}
        return self.gang_of({"metadata": {**metadata, "ownerReferences": owners}})

    def members(self, spec: GangSpec) -> list[Body]:
        """Return the existing pods of a gang, in whatever phase."""
        if spec.is_single:
            return [pod for pod in self.pods() if self.gang_of(pod) is spec]
        key = POD_GROUP_LABEL if spec.has_group else NAME
        named = self._named.get((spec.namespace, key, spec.name), {}).values()
        return [pod for pod in named if spec.has_made(pod)] if self.is_shared(spec) else list(named)

    def still_made(self, spec: GangSpec, elsewhere: int = 0) -> int:
        """Return how many pods of one run the batch Jobs of a gang can still have at once; ``NO_END`` without Jobs.

        ``elsewhere`` is the number of living pods of other runs. Successes of pods that were deleted since count as well.
        """
        if spec.kind != "job":
            return NO_END
        jobs = self.objects.get("jobs", {})
        found = (jobs.get((spec.namespace, workload_name(spec, role))) for role in spec.roles)
        left = [
            (int(job["spec"]["parallelism"]), int(job["spec"]["completions"]) - len(self.successes.get(uid_of(job), ())))
            for job in found
            if job is not None
        ]
        return max(0, min(sum(min(each) for each in left), sum(each[1] for each in left) - elsewhere))

    def asks_for_more_than_jobs_make(self, spec: GangSpec) -> bool:
        """Return whether the stated minimum exceeds the pods that the gang's batch Jobs have at once: then the gang waits for ever."""
        jobs = self.objects.get("jobs", {})
        found = [jobs.get((spec.namespace, workload_name(spec, role))) for role in spec.roles] if spec.kind == "job" else []
        at_once = [int(job["spec"]["parallelism"]) for job in found if job is not None]
        return bool(at_once) and (self.minimum(spec) or 0) > sum(at_once)

    def minimum(self, spec: GangSpec) -> int | None:
        """Return how many members must start together now; None when no object states it.

        If the pods of a Deployment state different minimums, the youngest pod's counts.
        """
        if not spec.has_group:
            return (self.minima.get(spec.key) or [(0.0, spec.minimum)])[-1][1]
        group = self.get("podgroups", spec.namespace, spec.name)
        return int(group["spec"]["minMember"]) if group else None

    def known_members(self, spec: GangSpec, process: str, when: float) -> list[Body]:
        """Return the living members that a scheduler had received by ``when``."""
        return [pod for pod in self.news.known(process, "pods", when).values() if self.gang_of(pod) is spec and is_alive(pod)]

    def minima_since(self, spec: GangSpec, when: float) -> list[int | None]:
        """Return the minimum that was stated at ``when``, and all later ones."""
        history = self.minima.get((spec.namespace, spec.name) if spec.has_group else spec.key, [])
        if not spec.has_group and not history:
            return [spec.minimum]
        late = [stated for at, stated in history if at >= when]
        return [*[stated for at, stated in history if at < when][-1:], *late]

    def last_minimum(self, spec: GangSpec) -> list[int]:
        """Return the last minimum that was stated, as a list; empty if none was."""
        return [stated for _, stated in self.minima.get((spec.namespace, spec.name), ()) if stated is not None][-1:]

    # Events.

    def note(self, what: str, *, gang: GangSpec | None = None, process: str = "", seconds: float = 0.0) -> Deed:
        """Record the fault or foreign action ``what``, which lasts for ``seconds``."""
        now = self.clock()
        deed = Deed(what, now, now + seconds, gang.key if gang else None, process)
        self.deeds.append(deed)
        return deed

    def was_done(self, gang: GangSpec, what: Collection[str], since: float = -math.inf) -> bool:
        """Return whether one of the actions ``what`` was done to a gang after ``since``."""
        name = gang.key
        return any(deed.gang == name and deed.what in what and deed.at > since for deed in self.deeds)

    def change(self, plural: str, is_deleted: bool, body: Body, before: Body | None) -> None:
        """Record that an object was written."""
        metadata = body["metadata"]
        key = (metadata.get("namespace") or "", metadata["name"])
        table = self.objects.setdefault(plural, {})
        if plural == "persistentvolumeclaims":
            self.claims_changed_at = self.clock()
        if is_deleted:
            table.pop(key, None)
            if plural == "pods":
                self.gone[key] = body
        else:
            table[key] = body
        if plural == "pods":
            self._note_names(key, table.get(key), before)
            self._made_by[key] = self.gang_of(body)
        if plural in ("pods", "nodes"):
            self.history.setdefault((plural, *key), []).append((self.clock(), None if is_deleted else body))
        if plural in ("pods", "podgroups", "poddisruptionbudgets"):
            self.created_at.setdefault(uid_of(body), self.clock())
        if plural == "pods":
            self.roles[uid_of(body)] = role_of(body)
            self.apps[uid_of(body)] = f"{metadata.get('namespace')}/{(metadata.get('labels') or {}).get('app', '')}"
            self.written[uid_of(body)] = self.clock()
        if plural == "pods":
            self._note_run(body, before)
        if plural == "podgroups":
            self.minima.setdefault(key, []).append((self.clock(), None if is_deleted else int(body["spec"]["minMember"])))
        elif plural in ("pods", "nodes"):
            self._note_move(plural, is_deleted, body, before)

    def _note_run(self, pod: Body, before: Body | None) -> None:
        """Record the minimum that a new pod of a Deployment states, and pods that have succeeded."""
        metadata, spec = pod["metadata"], self.gang_of(pod)
        if phase_of(pod) == "Succeeded" and (owner := owner_of(pod)):
            self.successes.setdefault(owner, set()).add(uid_of(pod))
        if before is None and spec is not None and not spec.has_group and spec.kind == "deployed":
            stated = int((metadata.get("labels") or {}).get(MINIMUM, spec.minimum))
            history = self.minima.setdefault(spec.key, [(0.0, spec.minimum)])
            if history[-1][1] != stated:
                history.append((self.clock(), stated))

    def _note_names(self, key: tuple[str, str], pod: Body | None, before: Body | None) -> None:
        """Index the pods of each gang by their labels, in the order in which they came."""
        for label in (POD_GROUP_LABEL, NAME):
            names = [((each or {}).get("metadata", {}).get("labels") or {}).get(label) for each in (before, pod)]
            if names[0] is not None and names[1] != names[0]:
                self._named[key[0], label, names[0]].pop(key, None)
            if pod is not None and names[1] is not None:
                self._named.setdefault((key[0], label, names[1]), {})[key] = pod

    def _note_move(self, plural: str, is_deleted: bool, body: Body, before: Body | None) -> None:
        if before is not None and not is_deleted and not _is_move(plural, body, before):
            return
        self.moved = self.clock()
        spec = self.gang_of(body) if plural == "pods" else None
        self._moves[spec.key if spec else None] = self.moved
        is_capacity_freed = plural == "pods" and before is not None and bool(node_of(before)) and (is_deleted or not is_alive(body))
        if plural == "nodes":
            self._note_shrinking(body, before or self.gone_nodes.get(name_of(body)))
        if plural == "nodes" or node_of(body):
            self.free_changed = self.clock()
        if plural == "nodes" or is_capacity_freed:
            self.freed = self.clock()
            self._freed.append((self.freed, name_of(body) if plural == "nodes" else node_of(body)))

    def _note_shrinking(self, node: Body, before: Body | None) -> None:
        """Record nodes that offer less than before; the pods on them stay."""
        self.gone_nodes[name_of(node)] = node
        if before is not None and any(capacity_of(node).get(resource, 0) < amount for resource, amount in capacity_of(before).items()):
            self.shrunk.add(name_of(node))

    def note_request(self, request: Request) -> None:
        """Record that a scheduler's request has arrived, and forget what is older than ``horizon``."""
        now = request.arrived = self.clock()
        self.requests.append(request)
        self._about.setdefault((request.plural, request.name), deque()).append(request)
        if request.verb == "bind":
            self._tries.setdefault(_try_key(request), []).append(request)
        while (self.requests[0].answered or now) < now - self.horizon:
            old = self.requests.popleft()
            self._about[old.plural, old.name].popleft()
            if old.verb == "bind":
                self._tries[_try_key(old)].remove(old)
        while self.struck and (self.struck[0].answered or now) < now - self.horizon:
            self.struck.popleft()
        if now - self._pruned > self.horizon / 4:
            self._prune(now)

    def strike(self, request: Request) -> None:
        """Record that a fault hits a request."""
        if not request.is_struck:
            request.is_struck = True
            self.struck.append(request)

    def _prune(self, now: float) -> None:
        self._pruned, horizon = now, now - self.horizon
        self.deeds[:] = [deed for deed in self.deeds if deed.until >= horizon]
        self._tries = {key: tries for key, tries in self._tries.items() if tries}
        self._about = {what: requests for what, requests in self._about.items() if requests}
        for table in (self.history, *self.news.received.values()):
            for key in [key for key, history in table.items() if history[-1][1] is None and history[-1][0] < horizon]:
                del table[key]
        living = {uid_of(pod) for pod in self.pods()} | {uid_of(pod) for pod in self.gone.values()}
        for uid in [uid for uid, at in self.written.items() if uid not in living and at < horizon]:
            del self.written[uid]
            self.created_at.pop(uid, None)
            self.apps.pop(uid, None)
            self.roles.pop(uid, None)

    def nodes_freed_since(self, since: float) -> int:
        """Return on how many nodes capacity was freed since ``since``."""
        return len({node for at, node in self._freed if at >= since})

    def quiet_elsewhere(self, *gangs: GangSpec) -> float:
        """Return for how many seconds nothing has changed but pods of these gangs."""
        names = {spec.key for spec in gangs}
        return self.clock() - max((at for name, at in self._moves.items() if name not in names), default=0.0)

    def is_stale(self, process: str, when: float) -> bool:
        """Return whether the watch of pods or nodes had been silent for ``STALE_SECONDS`` at ``when``."""
        return any(when - self.news.last_contact.get((process, plural), when) > STALE_SECONDS for plural in ("pods", "nodes"))

    def is_retry(self, request: Request) -> bool:
        """Return whether ``request`` rightly repeats a bind: an earlier try met a fault or a conflict, or had no answer."""
        before = [other for other in self._tries_of(request) if other is not request]
        recent = (other for other in before if request.sent - other.sent < 3 * RETRY_SECONDS)
        return any(other.is_struck or other.status in (0, 409) for other in recent) and not self._is_exhausted(before)

    def is_given_up(self, request: Request, by: float) -> bool:
        """Return whether all tries of a bind had failed at the time ``by``."""
        return self._is_exhausted([other for other in self._tries_of(request) if other.sent <= by])

    def _is_exhausted(self, tries: Sequence[Request]) -> bool:
        """Return whether a bind used up its tries: each failed at once by an error that may pass, and no node or foreign pod changed."""
        is_brisk = all(each.status in _TRANSIENT and not each.retry_after and not each.is_slow for each in tries)
        return is_brisk and self._moves.get(None, 0.0) < tries[0].sent - 1 and len(tries) % ATTEMPTS == 0

    def first_sent(self, request: Request) -> float:
        """Return when the first of the tries of a bind was sent; for other requests, when the request was sent."""
        return min((other.sent for other in self._tries_of(request)), default=request.sent)

    def is_of(self, request: Request, gang: GangSpec) -> bool:
        """Return whether a request is about a pod of a gang."""
        if request.plural != "pods" or request.namespace != gang.namespace or not request.name.startswith(f"{gang.name}-"):
            return False
        return not self.is_shared(gang) or self._made_by.get((request.namespace, request.name)) is gang

    def running_since(self, pod: Body) -> float | None:
        """Return when a running pod was first seen running; None if it doesn't run."""
        if phase_of(pod) != "Running":
            return None
        history = self.history.get(("pods", pod["metadata"]["namespace"], name_of(pod)), ())
        return next((at for at, body in history if body is not None and uid_of(body) == uid_of(pod) and phase_of(body) == "Running"), None)

    def is_guarded(self, pod: Body, when: float) -> bool:
        """Return whether, ``NEWS_SECONDS`` before ``when``, a disruption budget already forbade the eviction of a pod."""
        labels = (pod["metadata"].get("labels") or {}).items()
        return any(
            namespace == pod["metadata"]["namespace"]
            and budget["spec"].get("minAvailable") == "100%"
            and (budget["spec"].get("selector") or {}).get("matchLabels", {}).items() <= labels
            and self.created_at[uid_of(budget)] < when - NEWS_SECONDS
            for (namespace, _), budget in self.objects.get("poddisruptionbudgets", {}).items()
        )

    def requests_about(self, plural: str, name: str) -> Collection[Request]:
        """Return all requests about objects of that name, in any namespace."""
        return self._about.get((plural, name), ())

    def requests_since(self, when: float) -> Iterator[Request]:
        """Yield the requests that have arrived since ``when``, the latest first; those sent since ``when`` are among them."""
        return itertools.takewhile(lambda request: (request.arrived or when) >= when, reversed(self.requests))

    def binds_since(self, when: float) -> Iterator[Request]:
        """Yield the binds that have arrived since ``when``, the latest first."""
        return (request for request in self.requests_since(when) if request.is_bind)

    def dry_runs_of(self, request: Request) -> Sequence[Request]:
        """Return the dry runs that the sender of a bind has sent for its pod, the latest last."""
        return [other for other in self._tries.get(_try_key(request), ()) if other.is_dry_run]

    def _tries_of(self, request: Request) -> Sequence[Request]:
        """Return all tries of the bind ``request``, itself included."""
        return [other for other in self._tries.get(_try_key(request), ()) if other.is_bind and other.what == request.what]

    def in_doubt(self) -> Iterator[tuple[Body, Request]]:
        """Yield waiting pods, each with a bind that may still give it a node.

        Such a bind had no definite answer, and its pod hasn't changed since.
        """
        seen, since = set(), self.clock() - IN_FLIGHT_SECONDS
        for request in self.binds_since(since):
            if request.sent < since or (request.answered is not None and 0 < request.status < 500):
                continue
            pod = self.get("pods", request.namespace, request.name)
            if pod is None or node_of(pod) or uid_of(pod) in seen or not is_alive(pod):
                continue
            if str(pod["metadata"]["resourceVersion"]) == request.metadata.get("resourceVersion"):
                seen.add(uid_of(pod))
                yield pod, request

    def holding_capacity(self, *but: GangSpec, process: str = "") -> list[Body]:
        """Return all pods, as if each unresolved bind had given its pod the node.

        Unresolved binds of the gangs ``but`` don't count. If ``process`` is given, only the unresolved binds of that process count.
        """
        doubtful = {
            uid_of(pod): request.target
            for pod, request in self.in_doubt()
            if process in ("", request.process) and self.gang_of(pod) not in but
        }
        return with_assignments(self.pods(), doubtful)


def _try_key(request: Request) -> tuple[str, str]:
    return request.process, str(request.metadata.get("uid"))


def _is_move(plural: str, body: Body, before: Body) -> bool:
    if plural == "nodes":
        fields = ("allocatable", "conditions")
        return body.get("spec") != before.get("spec") or any(
            (body.get("status") or {}).get(each) != (before.get("status") or {}).get(each) for each in fields
        )
    states = [
        (node_of(pod), phase_of(pod), is_alive(pod), uid_of(pod), name_of(pod), bool(pod["spec"].get("schedulingGates")))
        for pod in (body, before)
    ]
    return states[0] != states[1]
