"""Turns facts into messages in kube-scheduler's words, because people grep for these words and tools parse them.

Formats: kube-scheduler framework/types.go (FitError), 1.37. A message of a gang begins with a sentence about the whole gang.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from allaboard.binding import reasons
from allaboard.binding.outcomes import Assignment, BindReply, Committed, MembersChanged, NotAdmitted, Refused, VolumesNotBound
from allaboard.cluster.reservations import Reservation
from allaboard.gangs.phases import Ending
from allaboard.leadership.fencing import EPOCH
from allaboard.model.constraints import NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.errors import one_line
from allaboard.model.gang import Gang, GangKey, Hold
from allaboard.model.pod import Pod
from allaboard.model.provisioning import Provisioning
from allaboard.model.quantities import format_amount
from allaboard.model.reasons import Cause, Code, Counted, Kind, Reason
from allaboard.placement import Explanation, Plan, RoleExplanation, SearchReport, Violation, Wrong
from allaboard.placement.remedies.remedies import More, Remedies
from allaboard.report.expected import expected, expected_nodes
from allaboard.report.reason_words import broken, reason, relaxed_rule, rule

NO_NODES = "no nodes available to schedule pods"
_JOB_POLICY = "a podFailurePolicy rule with action Ignore on the condition DisruptionTarget"
_FEW_NODES = 3
_EVENT_NOTE_LIMIT = 1024  # bytes; the API server refuses longer notes
_FEW_RULES = 3  # most rules that a message names
_SUMMARY_LIMIT = 80  # characters: a column of a table


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no capacity for a gang: a code, a sentence, a short form for a table, and a message for each of its pods, by UID."""

    code: Code
    message: str
    short: str
    of_pods: Mapping[str, str]


def violation(found: Violation) -> str:
    """Return the sentence that names the rule which a plan violates."""
    where = f"{found.pod} on {found.node}"
    match found.wrong:
        case Wrong.STRANGER:
            return f"pod {found.pod} is not a member of this gang"
        case Wrong.NO_NODE:
            return f"{found.pod}: node {found.node} does not exist"
        case Wrong.VOLUME:
            return f"{where}: {found.subject}"
        case Wrong.PORT:
            return f"{where}: host port {found.subject} is taken"
        case Wrong.BROKEN if found.reason:
            return broken(found.reason)
        case Wrong.DEVICES:
            return f"{found.node}: the parts of GPUs that {found.pods} members ask for don't fit on its devices together"
        case Wrong.TAKEN:
            return f"{where}: other pods have taken its capacity"
        case Wrong.OVERLOAD:
            requested, free = (format_amount(found.subject, amount) for amount in (found.requested, found.free))
            return f"{found.node}: {found.pods} members ask for {requested} {found.subject}, {free} free"
    return f"{where}: {reason(found.reason) if found.reason else found.wrong}"


def not_bound(outcome: Refused | Committed) -> str:
    """Return why no member, or not every member, of a placed gang was bound."""
    if isinstance(outcome, Committed):
        return "; ".join(f"pod{'s' if len(names) > 1 else ''} {_some(names)}: {why}" for why, names in _by_reason(outcome.failed)[:3])
    match outcome.because:
        case MembersChanged(existing, missing):
            return f"members changed while the gang was being placed: {existing} of {missing} unbound members still exist"
        case Violation(wrong=Wrong.BROKEN) as found:
            return f"the plan breaks a rule between members, or the cluster changed while it was made: {violation(found)}"
        case Violation() as found:
            return f"the cluster changed while the gang was being placed: {violation(found)}"
        case NotAdmitted(assignment, reply):
            return f"pod {assignment.pod.name} {member_not_bound(assignment, reply)}"
        case VolumesNotBound(problem):
            return f"its volumes can't be bound: {problem}"
        case Hold() as hold:
            return hold.message
        case gone:
            return f"podgroup {gone} is gone"


def _by_reason(failed: Sequence[tuple[Assignment, BindReply]]) -> list[tuple[str, list[str]]]:
    """Return each reason for failed binds with the names of its pods. Reasons that differ only in the pod's own name count as one."""
    found: dict[str, tuple[str, list[str]]] = {}
    for assignment, reply in failed:
        why, name = _why_not(reply), assignment.pod.name
        found.setdefault(why.replace(f'"{name}"', ""), (why, []))[1].append(name)
    return list(found.values())


def member_not_bound(assignment: Assignment, reply: BindReply) -> str:
    """Return why a member was not bound, as the end of a sentence that begins with the pod."""
    prefix = f"{assignment.pod.key} on {assignment.node_name}: "
    return f"can't be bound to {assignment.node_name}: {_why_not(reply).removeprefix(prefix)}"


def _why_not(reply: BindReply) -> str:
    return violation(reply.violation) if reply.violation else reply.message or reply.result


def fit_error(total_nodes: int, reasons: Counted) -> str:
    """Return kube-scheduler's message for a pod that fits on no node. Reasons are sorted as text, as in kube-scheduler.

    Example: ``0/7 nodes are available: 3 Insufficient cpu, 4 Too many pods.``
    """
    if not total_nodes:
        return NO_NODES
    counted = ", ".join(sorted(f"{count} {reason(each)}" for each, count in reasons))
    return f"0/{total_nodes} nodes are available" + (f": {counted}." if counted else ".")


def refusal(gang: Gang, plan: Plan, why: Cause | None = None) -> str:
    """Return why ``gang`` was not placed, for its PodGroup: how many members fit, the cause ``why``, and what blocks the other members."""
    return _Refusal(gang, plan, why).of_gang()


def refused(
    gang: Gang, plan: Plan, why: Cause, reservation: Reservation | None = None, provisioning: Provisioning | None = None
) -> Refusal:
    """Return the report on a gang without capacity.

    ``reservation`` is the capacity that is reserved for the gang, and ``provisioning`` how far nodes are that an autoscaler is asked for;
    None if there is none.
    """
    found = _Refusal(gang, plan, why)
    message = found.of_gang()
    of_pods = found.of_pods()
    if reservation is not None:
        message += expected(reservation)
        of_pods = dict.fromkeys(of_pods, message) if gang.is_single else of_pods
    message += expected_nodes(provisioning) if provisioning else ""
    return Refusal(why.code, message, cause(why, plan), of_pods)


def cause(why: Cause, plan: Plan, subject: str = "a member") -> str:
    """Return why there is no capacity for a gang, in a few words; ``subject`` is the word for a member that is too large."""
    amounts = [format_amount(why.resource, amount) for amount in (why.requested, why.there)] if why.resource else []
    needs = {0: "needs", 1: "a member needs"}.get(why.members, f"{why.members} members of one role need")
    match why.code:
        case Code.INSUFFICIENT if why.rule:
            return f"minResources asks for {amounts[0]} {why.resource} where {_free(amounts[1])}"
        case Code.NEVER_FITS if why.rule and amounts:
            return f"minResources asks for {amounts[0]} {why.resource}; the nodes have {amounts[1]} in all"
        case Code.INSUFFICIENT:
            return f"{needs} {amounts[0]} {why.resource} where {_free(amounts[1])}" if amounts else "too little is free"
        case Code.FRAGMENTED if amounts:
            return f"{needs} {amounts[0]} {why.resource}; {_free(amounts[1])}, but fragmented"
        case Code.FRAGMENTED:
            return "enough is free, but fragmented"
        case Code.NEVER_FITS if why.member:
            return f"{subject} asks for {amounts[0]} {why.resource}; no node it may use has more than {amounts[1]}"
        case Code.NEVER_FITS if amounts:
            return f"{needs} {amounts[0]} {why.resource}; the nodes {'they' if why.members > 1 else 'it'} may use have {amounts[1]} in all"
        case Code.NEVER_FITS if why.rule and why.rule.kind is not Kind.TOPOLOGY:
            return f"doesn't fit on empty nodes either, because of {_listed([rule(each) for each in (why.rule, *why.other_rules)])}"
        case Code.NEVER_FITS if why.rule:
            return f"no {why.rule.subject} fits all members that must share one, even empty"
        case Code.NEVER_FITS:
            return "too large for the nodes it may use, even when they are empty"
        case Code.RESERVED if why.rule:
            return f"the free capacity is reserved for {why.rule.subject}"
        case Code.CONSTRAINTS if why.rule:
            return f"would fit without {_listed([rule(each) for each in (why.rule, *why.other_rules)])}"
    role = _hardest_role(plan.explanation, why)
    kept = [(nodes, reason(each)) for each, nodes in role.reasons if each.kind is not Kind.INSUFFICIENT] if role else []
    nodes, text = max(kept, default=(0, ""))
    return f"{nodes} of {plan.explanation.total_nodes} {text}" if text else NO_NODES


def _listed(words: Sequence[str]) -> str:
    """Return ``words`` as a list in a sentence; only the first three if there are more."""
    shown = [*words[:_FEW_RULES], *([f"{len(words) - _FEW_RULES} more"] if len(words) > _FEW_RULES else [])]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]


def _free(amount: str) -> str:
    return f"{amount} {'is' if amount == '1' else 'are'} free"


def members_bound(number: int) -> str:
    """Return the message of a gang that is whole."""
    return f"{number} {'member' if number == 1 else 'members'} bound"


def ended(ending: Ending) -> str:
    """Return the message of a gang without living members."""
    return f"ended: {ending.succeeded} {'member' if ending.succeeded == 1 else 'members'} succeeded, {ending.failed} failed"


def summary(text: str) -> str:
    """Return ``text`` on one line of at most 80 characters, for a column of a table."""
    text = one_line(text)
    return text if len(text) <= _SUMMARY_LIMIT else f"{text[: _SUMMARY_LIMIT - 1].rstrip()}…"


def advice(gang: Gang, remedies: Remedies, blocker: Gang | None, relaxed: Iterable[Reason] = ()) -> str:
    """Return what would let ``gang`` fit, as the last sentence of its refusal; empty if no remedy is known.

    Without any one of the rules ``relaxed`` it would fit, too.
    A gang of another namespace is not named: a tenant must not learn what runs in other namespaces.
    """
    ways = []
    if remedies.more is not None:
        ways.append(f"with {_more(gang, remedies.more)}")
    if remedies.nodes is not None:
        domain = f" in {remedies.nodes.domain}" if remedies.nodes.domain else ""
        ways.append(
            f"with {remedies.nodes.number} more {'node' if remedies.nodes.number == 1 else 'nodes'} like {remedies.nodes.like}{domain}"
        )
    if blocker is not None:
        name = f"gang {blocker.key.name}" if blocker.key.namespace == gang.key.namespace else "a gang of another namespace"
        ways.append(f"if {name} (priority {blocker.priority}) left")
    ways += map(relaxed_rule, relaxed)
    return f"Would fit {', or '.join(ways)}." if ways else ""


def with_advice(message: str, advice: str) -> str:
    """Return a refusal with the ``advice`` as its last sentence; the refusal alone if there is none."""
    return f"{message.removesuffix('.')}. {advice}" if advice else message


def selector_text(spec: SchedulingSpec) -> str:
    """Return which nodes a spec selects, as a selector for ``kubectl get nodes -l`` if one can express it; empty for all nodes."""
    selector = ",".join(f"{key}={value}" for key, value in spec.node_selector)
    terms = [_term_text(term) for term in spec.affinity or ()]
    affinity = " or ".join(term for term in terms if term)
    return f"{selector},{affinity}" if selector and affinity else selector or affinity


def pod_refusals(gang: Gang, plan: Plan, why: Cause | None = None) -> dict[str, str]:
    """Return a message for each candidate, by UID: the sentence about the gang, followed by what blocks pods of the candidate's role."""
    return _Refusal(gang, plan, why).of_pods()


def surplus_refusals(plan: Plan) -> dict[str, str]:
    """Return why members beyond the minimum were not placed, by UID."""
    unplaced = set(plan.unplaced)
    messages: dict[str, str] = {}
    for role in plan.explanation.roles:
        left_out = [uid for uid in role.pods if uid in unplaced]
        if left_out:
            messages.update(dict.fromkeys(left_out, fit_error(plan.explanation.total_nodes, role.reasons)))
    return messages


def members_missing_in_short(gang: Gang) -> str:
    """Return the short form of ``members_missing``, for a table."""
    return f"{_existing(gang)} of {gang.required} members exist"


def _existing(gang: Gang) -> int:
    return len(gang.alive) + (gang.succeeded if gang.missing else 0)  # the next wave of a whole run needs new pods


def members_missing(gang: Gang, *, was_whole: bool = False) -> str:
    """Return the message of a gang that waits for pods that don't exist yet; ``was_whole``: the current run was whole before."""
    gated = sum(1 for pod in gang.members if pod.is_gated and not pod.is_terminating)
    tail = f", {gated} of them gated" if gated else ""
    # Named because the counts in the PodGroup's status include all runs.
    others = sum(1 for pod in gang.others if pod.is_alive)
    of_run = f" in this run, and {others} of other runs" if others else ""
    roles = "".join(f", role {role} lacks {number}" for role, number in sorted(gang.roles_without_pods.items()))
    stale = "; the gang was whole before: lower minMember if it was scaled down" if was_whole and gang.bound else ""
    return f"podgroup {gang.key}: waiting for members: {_existing(gang)} of {gang.required} exist{of_run}{tail}{roles}{stale}"


def backs_off(gang: Gang, losses: int, seconds: float) -> str:
    """Return why no member is bound now: members were lost ``losses`` times in a row, each time soon after they were bound."""
    number = {1: "once", 2: "twice"}.get(losses, f"{losses} times in a row")
    lost = f"members were lost soon after they were bound, {number}"
    return f"podgroup {gang.key}: {lost}: the next members are bound {seconds:g} s after the last"


def kept_open(gang: Gang, bound: Sequence[Pod], message: str, problem: str = "") -> str:
    """Return why the ``bound`` members of a partially bound gang are kept, and which setting would let them be released.

    ``message``: why the gang isn't whole. ``problem``: why Jobs that should be suspended are not; empty if there is no such Job.
    """
    running = [pod.name for pod in bound if pod.phase == "Running"]
    bare = [pod.name for pod in bound if pod.owner is None and pod.option("recreate") != "true"]
    jobs = {pod.owner.name for pod in bound if pod.owner is not None and pod.is_of_job}
    reasons = []
    if running:
        reasons.append(f"{_some(running)} already running")
    if bare:
        reasons.append(f'{_some(bare)} would not be recreated (if a controller recreates them, annotate allaboard.dev/recreate: "true")')
    if jobs:
        way_out = _JOB_POLICY if gang.undo else f"{_JOB_POLICY}, or its gang has the annotation allaboard.dev/undo: suspend"
        reasons.append(f"job {', '.join(sorted(jobs))} counts a lost pod as a failure (unless it has {way_out})")
        if gang.undo and not (running or bare or problem):
            reasons.append(f"the job is suspended and resumed if the gang isn't whole after {gang.timeout_seconds} s")
    if problem:
        reasons.append(problem)
    why = "; ".join(reasons) or "members could not be released"
    return f"stays partially bound with {len(bound)} of {gang.quorum} members bound: {why}; {message}"


def why(gang: Gang, because: reasons.Reason) -> str:
    """Return why a gang waits, is released or stays partially bound, as a message for its PodGroup and its pods."""
    match because:
        case reasons.Held(hold):
            return hold.message
        case reasons.MembersMissing(was_whole):
            return members_missing(gang, was_whole=was_whole)
        case reasons.LostSoon(losses=losses, seconds=seconds):
            return backs_off(gang, losses, seconds)
        case reasons.NoCapacity(plan, cause, reservation, nodes):
            words = (expected(reservation) if reservation else "") + (expected_nodes(nodes) if nodes else "")
            return refusal(gang, plan, cause) + words
        case reasons.NotBound(outcome):
            return not_bound(outcome)
        case reasons.NotFinished(missing, seconds):
            return f"{missing} missing members could not be bound within {seconds:g} s"
        case reasons.NotReplaced(missing, seconds):
            return f"{missing} lost members could not be replaced within {seconds} s"
        case reasons.CapacityNeeded(by, seconds, members):
            return f"not whole within {seconds} s, and {named_for(gang, by)} needs the capacity of its {members} bound members"
        case reasons.Preempted(by=by, priority=priority, pods=number, is_whole=is_whole):
            left = "the gang stays whole" if is_whole else "the gang starts again when there is capacity"
            lost = "1 pod is" if number == 1 else f"{number} pods are"
            return f"{lost} evicted for {named_for(gang, by)}, which has the higher priority {priority}; {left}"
        case reasons.SearchFailed(error):
            return error
        case reasons.NotFenced(name, error):
            return f"an earlier leader may still bind pod {name}, because writing its annotation {EPOCH} fails: {error}"
        case reasons.Defect():
            return "the scheduler failed on this gang with an internal error; see its log"
        case reasons.Kept(because=first, pods=pods, problem=problem):
            return kept_open(gang, pods, why(gang, first), problem)


def named_for(gang: Gang, other: GangKey) -> str:
    """Return the name of another gang in a message for ``gang``: a tenant must not learn the names of another namespace."""
    kind = "pod" if other.kind == "Pod" else "podgroup"
    return f"{kind} {other}" if other.namespace == gang.key.namespace else f"a {kind} of another namespace"


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def event_note(text: str) -> str:
    """Return ``text`` on one line, cut to the longest note of an event in the way that kube-scheduler cuts it."""
    text = one_line(text)
    encoded = text.encode()
    if len(encoded) <= _EVENT_NOTE_LIMIT:
        return text
    return encoded[: _EVENT_NOTE_LIMIT - 4].decode(errors="ignore") + " ..."


def _more(gang: Gang, more: More) -> str:
    """Return in words which further capacity would let a gang fit.

    Example: ``2 more nvidia.com/gpu on nodes matching pool=train (1 on a, 1 on b)``.
    """
    spec = next((pod.spec for pod in gang.members if pod.uid == more.pod), None)
    domain = "" if "," in more.domain else more.domain  # Roles in several domains: no selector matches the nodes of all roles.
    selector = ",".join(filter(None, (selector_text(spec) if spec else "", domain)))
    what = f"{format_amount(more.resource, more.amount)} more {more.resource}"
    matching = f" on nodes matching {selector}" if selector else ""
    if len(more.where) > _FEW_NODES:
        return f"{what}{matching} (on {len(more.where)} of them)" if selector else f"{what} (on {len(more.where)} nodes)"
    return f"{what}{matching} ({', '.join(f'{format_amount(more.resource, amount)} on {node}' for node, amount in more.where)})"


def _term_text(term: NodeSelectorTerm) -> str:
    return ",".join(_requirement_text(requirement) for requirement in (*term.expressions, *term.fields))


def _requirement_text(requirement: Requirement) -> str:
    key, values = requirement.key, requirement.values
    if requirement.operator in ("In", "NotIn"):
        if len(values) == 1:
            return f"{key}{'=' if requirement.operator == 'In' else '!='}{values[0]}"
        return f"{key} {'in' if requirement.operator == 'In' else 'notin'} ({', '.join(values)})"
    if requirement.operator in ("Gt", "Lt"):
        return f"{key}{'>' if requirement.operator == 'Gt' else '<'}{', '.join(values)}"
    return key if requirement.operator == "Exists" else f"!{key}"


def _hardest_role(explanation: Explanation, why: Cause | None) -> RoleExplanation | None:
    """Return the role with unplaced pods that a message names; None if all pods are placed.

    The role of the member that ``why`` names comes first, then a role that fits on no node, then a role for which the other roles left no
    capacity. Roles that the minimum doesn't need come last.
    """
    left_out = [role for role in explanation.roles if role.unplaced]
    named = why.member if why else ""
    return min(left_out, key=lambda role: (named not in role.pods, role.is_spare, role.most > 0, role.most - len(role.pods)), default=None)


class _Refusal:
    """Messages on a gang that was not placed. The sentence about the gang is made once, since a gang may have thousands of members."""

    def __init__(self, gang: Gang, plan: Plan, why: Cause | None) -> None:
        self._explanation = plan.explanation
        self._hardest = _hardest_role(plan.explanation, why)
        self._head = "" if gang.is_single else _head(gang, plan, why)
        self._tail = f" It never fits: {cause(why, plan, 'it')}." if gang.is_single and why and why.code is Code.NEVER_FITS else ""
        if gang.is_single and why and why.code is Code.RESERVED:
            self._tail = f" But {cause(why, plan)}."
        if gang.is_single and why and why.node:
            self._tail += f" gpu-number asks for {why.requested} {why.resource}; {why.node} has most free: {why.most}."
        if gang.is_single and why and why.unwell:
            self._tail += f" {_with_errors(why)}."
        self._names = {pod.uid: pod.name for pod in gang.members} if self._head and len(plan.explanation.roles) > 1 else {}

    def of_gang(self) -> str:
        """Return one message: the sentence about the gang, followed by what blocks the role that is hardest to place."""
        return self._because_of(self._hardest)

    def of_pods(self) -> dict[str, str]:
        """Return a message for each candidate, by UID: the sentence about the gang, followed by what blocks the candidate's role.

        If the candidate's role is placed, the message says instead what blocks the role that is hardest to place.
        """
        messages: dict[str, str] = {}
        for role in self._explanation.roles:
            messages.update(dict.fromkeys(role.pods, self._because_of(role if role.unplaced or self._hardest is None else self._hardest)))
        return messages

    def _because_of(self, role: RoleExplanation | None) -> str:
        """Return one message: the sentence about the gang, followed by what blocks the pods of ``role``."""
        reasons = fit_error(self._explanation.total_nodes, role.reasons if role else ())
        if not self._head:
            return reasons + self._tail
        pod = f"pod {self._names[role.pods[0]]}: " if role and role.pods[0] in self._names else ""
        return f"{self._head}; {pod}{reasons}"


def _with_errors(why: Cause) -> str:
    return f"{why.unwell} node(s) had GPUs with errors"


def _head(gang: Gang, plan: Plan, why: Cause | None) -> str:
    explanation = plan.explanation
    already = len(gang.bound) + (gang.succeeded if gang.missing else 0)
    # A role may lack members while other roles have surplus.
    needed = max(0, min(already + explanation.placeable, gang.min_member - explanation.lacking))
    placeable = f"{needed} of {gang.min_member} members placeable"
    head = f"podgroup {gang.key}: {placeable}"
    if why is not None and (why.resource or why.rule or why.code is Code.NEVER_FITS):
        head += f", {cause(why, plan)}"
        head += f" ({_with_errors(why)})" if why.unwell else ""
    return f"{head}, no placement found" if plan.feasible is None else head


def steps(report: SearchReport) -> str:
    """Return each step of a search with the number of placed members and the score.

    Example: ``greedy 20@88.871, polish 20@89.803, evolution(9) 20@91.821``.
    """
    return ", ".join(
        f"{step.name}{f'({step.generations})' if step.generations else ''} {step.placed}@{step.score:.3f}" for step in report.steps
    )


def generations(number: int, stopped_by: str = "", wanted: int = 0) -> str:
    """Return the number of generations, with the ``wanted`` number if the search got fewer; if there are none, why none was needed."""
    known = {"exact": "known to be best by an exact method", "optimal": "known to be best by a bound"}
    text = f"{number} of {wanted} generations" if wanted else f"{number} generation{'' if number == 1 else 's'}"
    return f"{text}: {known[stopped_by]}" if not number and stopped_by in known else text
