"""Tests that the reason and the advice for random gangs hold in a cluster that is changed as the advice says.

The truth is a solver in this module. It reads the objects and the sentences, tries every placement, and shares no code with the scheduler.
"""

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.whatif.raw_objects import Raw, board_of, raw_group, raw_node, raw_pod

GPU = "nvidia.com/gpu"
STEPS = {"cpu": 500, "memory": 1 << 30, GPU: 1}
"""The resources of these clusters, each with the amount of which all others are multiples: in millicores, bytes and GPUs."""
DEDICATED = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
SPOT = {"key": "spot", "effect": "NoSchedule"}
NEEDS = r"(?:(?P<one>a member )|(?P<members>\d+) members of one role )?needs? (?P<needed>\S+) (?P<resource>[^ ;]+)"
FREE_NOW = r" where (?P<now>\S+) (?:is|are) free"
FREE_EVER = r"; the nodes \w+ may use have (?P<ever>\S+) in all"
QUANTITY = re.compile(r"([\d.]+)(Ki|Mi|Gi|m|)")


@dataclass
class Case:
    """A cluster, and the gang ``train`` in it, of which ``minimum`` pods are needed. All pods with one ``role`` label are equal."""

    nodes: list[Raw]
    bound: list[Raw]
    waiting: list[Raw]
    groups: list[Raw]
    minimum: int

    @property
    def objects(self) -> list[Raw]:
        return [*self.nodes, *self.groups, *self.bound, *self.waiting]

    def copy(self) -> "Case":
        return deepcopy(self)


def quantities(cpu: int, memory: int, gpus: int) -> dict[str, str]:
    return {"cpu": f"{cpu * 500}m", "memory": f"{memory}Gi", **({GPU: str(gpus)} if gpus else {})}


def amount(resource: str, text: str) -> int:
    """Return a quantity in steps of its resource, rounded up."""
    number, unit = QUANTITY.fullmatch(text).groups()  # type: ignore[union-attr]
    if resource == "cpu":
        units = float(number) * (1 if unit == "m" else 1000)
    else:
        units = float(number) * {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}[unit]
    return -int(-units // STEPS[resource])


def a_node(name: str, cpu: int, **labels: str) -> Raw:
    return raw_node(name, {"cpu": str(cpu), "memory": "64Gi"}, labels, taints=[])


def a_case(of: random.Random) -> Case:
    """Return a random cluster of one to four nodes, some of them in use, tainted or cordoned, and a gang of one or two roles."""
    nodes, bound, groups = [], [], []
    for number in range(of.randint(1, 4)):
        name = f"n{number}"
        taints = of.choice([[], [], [], [], [DEDICATED], [SPOT], [DEDICATED, SPOT]])
        spec = {"taints": taints, **({"unschedulable": True} if of.random() < 0.15 else {})}
        has = quantities(of.randint(2, 8), of.randint(2, 8), of.randint(0, 4))
        labels = {"pool": pool} if (pool := of.choice(["a", "b", ""])) else {}
        nodes.append(raw_node(name, has, labels, **spec))
    for name in ("older", "newer"):
        placed = [
            raw_pod(
                f"{name}-{number}",
                quantities(of.randint(1, 3), of.randint(1, 2), of.randint(0, 1)),
                name,
                nodeName=node["metadata"]["name"],
            )
            for number, node in enumerate(nodes)
            if of.random() < 0.6
        ]
        if placed:
            bound += placed
            groups.append(raw_group(name, len(placed)))
    waiting = []
    for role in range(of.randint(1, 2)):
        spec = {"nodeSelector": {"pool": "a"}} if of.random() < 0.3 else {}
        if of.random() < 0.3:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        asked = quantities(of.randint(1, 4), of.randint(1, 3), of.randint(0, 2))
        waiting += [raw_pod(f"train-{role}-{number}", asked, "train", **spec) for number in range(of.randint(1, 3))]
    for number, pod in enumerate(waiting):
        pod["metadata"]["labels"]["role"] = pod["metadata"]["name"].split("-")[1]
        pod["metadata"]["creationTimestamp"] = f"2026-01-01T00:01:{number:02}Z"
    minimum = max(1, len(waiting) - of.choice([0, 0, 1]))
    return Case(nodes, bound, waiting, [*groups, raw_group("train", minimum)], minimum)


def may_run(pod: Raw, node: Raw) -> bool:
    """Return whether the rules about single nodes let ``pod`` run on ``node``."""
    tolerated = [(each["key"], each.get("value")) for each in pod["spec"].get("tolerations", [])]
    labels = node["metadata"]["labels"]
    return (
        not node["spec"].get("unschedulable")
        and all((taint["key"], None) in tolerated or (taint["key"], taint.get("value")) in tolerated for taint in node["spec"]["taints"])
        and all(labels.get(key) == value for key, value in pod["spec"].get("nodeSelector", {}).items())
    )


def roles_of(case: Case) -> list[list[Raw]]:
    """Return the pods of the gang, those of each role together."""
    roles: dict[str, list[Raw]] = {}
    for pod in case.waiting:
        roles.setdefault(pod["metadata"]["labels"]["role"], []).append(pod)
    return list(roles.values())


def asked_by(pod: Raw) -> list[int]:
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    return [amount(resource, requests.get(resource, "0")) for resource in STEPS]


def free_of(node: Raw, bound: Sequence[Raw]) -> list[int]:
    free = [amount(resource, node["status"]["allocatable"].get(resource, "0")) for resource in STEPS]
    for pod in bound:
        if pod["spec"]["nodeName"] == node["metadata"]["name"]:
            free = [one - other for one, other in zip(free, asked_by(pod), strict=True)]
    return free


def fits(case: Case, *, ignores_amounts: bool = False) -> bool:
    """Return whether enough pods of the gang fit: every number of pods of each role is tried on each node."""
    roles = [pods[0] for pods in roles_of(case)]
    counts = [len(pods) for pods in roles_of(case)]
    reached = {(0,) * len(roles)}
    for node in case.nodes:
        free = free_of(node, case.bound)
        ways = [
            taken
            for taken in itertools.product(
                *(range((count if may_run(pod, node) else 0) + 1) for count, pod in zip(counts, roles, strict=True))
            )
            if all(
                ignores_amounts or not load or load <= free[column]
                for column in range(len(STEPS))
                for load in [sum(number * asked_by(pod)[column] for number, pod in zip(taken, roles, strict=True))]
            )
        ]
        reached = {
            tuple(min(a + b, most) for a, b, most in zip(before, taken, counts, strict=True)) for before in reached for taken in ways
        }
    return any(sum(placed) >= case.minimum for placed in reached)


async def shown(case: Case, folder: Path) -> tuple[str, str]:
    """Return the reason and the message of the gang ``train``, as commands show them."""
    board = board_of(case.objects, folder)
    gang = await board.gang("team", "train")
    assert gang is not None
    return gang.row.state, gang.row.message


def ways_of(message: str) -> list[str]:
    _, _, advice = message.partition("Would fit ")
    return advice.removesuffix(".").split(", or ") if advice else []


def with_amounts(case: Case, resource: str, where: str) -> Iterator[Case]:
    """Yield the cluster with the amounts that a piece of advice names, then the cluster with one step less on each of the nodes."""
    amounts = {node: amount(resource, text) for text, node in (part.split(" on ") for part in where.split(", "))}
    for less in [None, *amounts]:
        changed = case.copy()
        for node in changed.nodes:
            if more := amounts.get(node["metadata"]["name"], 0) - (node["metadata"]["name"] == less):
                has = node["status"]["allocatable"]
                number = (amount(resource, has.get(resource, "0")) + more) * STEPS[resource]
                has[resource] = f"{number}m" if resource == "cpu" else str(number)
        yield changed


def with_nodes(case: Case, number: int, like: str) -> Case:
    changed = case.copy()
    (model,) = (node for node in case.nodes if node["metadata"]["name"] == like)
    for index in range(number):
        added = deepcopy(model)
        added["metadata"]["name"] = f"added-{index}"
        added["spec"].pop("unschedulable", None)
        changed.nodes.append(added)
    return changed


def advised(case: Case, way: str) -> tuple[Case, list[Case]]:
    """Return the cluster as one piece of advice wants it, and clusters that do less than the piece of advice says."""
    changed = case.copy()
    if found := re.fullmatch(r"with (\S+) more (\S+?)(?: on nodes matching \S+)? \((.*)\)", way):
        changed, *less = with_amounts(case, found[2], found[3])
        return changed, less
    if found := re.fullmatch(r"with (\d+) more nodes? like (\S+)", way):
        return with_nodes(case, int(found[1]), found[2]), [with_nodes(case, int(found[1]) - 1, found[2])]
    if found := re.fullmatch(r"if gang (\S+) \(priority \d+\) left", way):
        changed.bound = [pod for pod in changed.bound if pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] != found[1]]
    elif way.startswith("without its node selector or affinity (pool=a)"):
        for pod in changed.waiting:
            pod["spec"].pop("nodeSelector", None)
    elif found := re.fullmatch(r"if its pods tolerated the taint ([^=]+)(?:=(.+))?", way):
        toleration = {"key": found[1], "operator": "Equal", "value": found[2]} if found[2] else {"key": found[1], "operator": "Exists"}
        for pod in changed.waiting:
            pod["spec"]["tolerations"] = [*pod["spec"].get("tolerations", []), toleration]
    elif way == "if all nodes were ready and none was cordoned":
        for node in changed.nodes:
            node["spec"].pop("unschedulable", None)
    else:
        raise AssertionError(f"unknown advice: {way}")
    return changed, [case]


def emptied(case: Case) -> Case:
    """Return the cluster without the pods that run in it, and without cordons."""
    changed = case.copy()
    changed.bound = []
    for node in changed.nodes:
        node["spec"].pop("unschedulable", None)
    return changed


def assert_claim_holds(case: Case, reason: str, message: str) -> None:
    """Assert what ``reason`` and the numbers of ``message`` claim about the cluster. The gang is known not to fit."""
    if fits(case, ignores_amounts=True):
        assert (reason == "NeverFits") == (not fits(emptied(case))), reason
        assert reason in ("NeverFits", "Insufficient", "Fragmented")
    else:
        assert reason == "Constraints" or (reason == "NeverFits" and not fits(emptied(case)))
    there = emptied(case) if reason == "NeverFits" else case
    if found := re.search(f"{NEEDS}(?:{FREE_NOW}|{FREE_EVER})", message):
        resource, needed, free = found["resource"], amount(found["resource"], found["needed"]), found["now"] or found["ever"]
        members = int(found["members"] or bool(found["one"]))
        claims = [(pods, members) for pods in roles_of(case) if len(pods) >= members] if members else [(case.waiting, case.minimum)]
        assert (needed, amount(resource, free)) in [requested_and_free(there, pods, number, resource) for pods, number in claims]
        assert needed > amount(resource, free)
    if found := re.search(r"a member asks for (\S+) (\S+); no node it may use has more than (\S+?);", message):
        column = list(STEPS).index(found[2])
        asked, most = amount(found[2], found[1]), amount(found[2], found[3])
        assert asked > most
        assert any(
            asked_by(pod)[column] == asked
            and max((free_of(node, [])[column] for node in there.nodes if may_run(pod, node)), default=-1) == most
            for pod in case.waiting
        )


def requested_and_free(case: Case, pods: Sequence[Raw], number: int, resource: str) -> tuple[int, int]:
    """Return how much ``number`` of ``pods`` request at least, and how much is free on the nodes that pods with such a request may use."""
    column = list(STEPS).index(resource)
    asking = [pod for pod in pods if asked_by(pod)[column]]
    usable = [node for node in case.nodes if any(may_run(pod, node) for pod in asking)]
    requested = sum(sorted(asked_by(pod)[column] for pod in pods)[:number])
    return requested, sum(max(0, free_of(node, case.bound)[column]) for node in usable)


@pytest.mark.parametrize("block", range(10))
async def test_the_reason_and_each_piece_of_advice_hold_for_random_gangs(block: int, tmp_path: Path) -> None:
    of, refused = random.Random(block), 0
    while refused < 30:
        case = a_case(of)
        if fits(case):
            continue
        refused += 1
        reason, message = await shown(case, tmp_path)
        assert_claim_holds(case, reason, message)
        for way in ways_of(message):
            changed, less = advised(case, way)
            assert fits(changed), (way, message)
            assert not any(fits(each) for each in less), (way, message)


def a_role(role: str, number: int, cpu: int, options: dict[str, str] | None = None, **selector: str) -> list[Raw]:
    """Return the pods of one role of the gang ``train``, which state ``options`` as annotations."""
    found = [raw_pod(f"train-{role}-{index}", {"cpu": str(cpu)}, "train", nodeSelector=selector) for index in range(number)]
    for pod in found:
        pod["metadata"]["annotations"] = {f"allaboard.dev/{name}": value for name, value in {"role": role, **(options or {})}.items()}
    return found


async def test_new_nodes_are_advised_in_the_domain_of_the_role_that_needs_them(tmp_path: Path) -> None:
    in_zone = {"required-topology": "zone"}
    waiting = [*a_role("ps", 2, 3, in_zone, pool="y"), *a_role("worker", 2, 1, in_zone, pool="x")]
    nodes = [a_node("a1", 4, zone="a", pool="x"), a_node("b1", 4, zone="b", pool="y")]
    _, message = await shown(Case(nodes, [], waiting, [raw_group("train", 4)], 4), tmp_path)
    assert message.endswith("Would fit with 1 more node like b1 in zone=b.")


async def test_all_selectors_are_named_if_the_gang_fits_only_without_all_of_them(tmp_path: Path) -> None:
    waiting = [*a_role("ps", 1, 1, disk="ssd"), *a_role("worker", 1, 2, pool="x")]
    _, message = await shown(Case([a_node("n1", 4), a_node("n2", 4)], [], waiting, [raw_group("train", 2)], 2), tmp_path)
    assert "Would fit without its node selector or affinity (disk=ssd; pool=x)." in message


async def test_no_negative_number_of_members_is_placeable(tmp_path: Path) -> None:
    """The minimums of the roles together may exceed that of the PodGroup."""
    group = raw_group("train", 2)
    group["metadata"]["annotations"] = {"allaboard.dev/min-members": "ps=4"}
    _, message = await shown(Case([a_node("n1", 4)], [], a_role("ps", 4, 8), [group], 2), tmp_path)
    assert "0 of 2 members placeable" in message


async def test_the_required_level_of_the_pod_group_holds_for_a_role_with_its_own(tmp_path: Path) -> None:
    group = raw_group("train", 2)
    group["metadata"]["annotations"] = {"allaboard.dev/required-topology": "rack"}
    waiting = [*a_role("ps", 1, 3), *a_role("worker", 1, 3, {"required-topology": "zone"})]
    nodes = [a_node("n1", 4, rack="r1", zone="c"), a_node("n2", 4, rack="r2", zone="c")]
    reason, _ = await shown(Case(nodes, [], waiting, [group], 2), tmp_path)
    assert reason == "Constraints"
