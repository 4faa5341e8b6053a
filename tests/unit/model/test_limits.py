"""The data that is read of a pod is bounded, whatever its tenant writes."""

import gc
import sys
import weakref
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.model import limits
from allaboard.model.pod import Pod, Reading, pod_from

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
OURS = frozenset({"allaboard"})
MANY = 1500


def raw_pod(metadata: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, scheduler: str = "allaboard") -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
    return {
        "metadata": {"name": "p", "namespace": "evil", "uid": "u", **(metadata or {})},
        "spec": {"schedulerName": scheduler, "nodeName": "n1", "containers": [container], **(spec or {})},
        "status": {"phase": "Running"},
    }


def selector(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"topologyKey": "zone", "labelSelector": {"matchExpressions": list(expressions)}}


def affinity(*terms: dict[str, Any], kind: str = "nodeAffinity") -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: {"nodeSelectorTerms": list(terms)} if kind == "nodeAffinity" else list(terms)}}}


def several(most: int, **field: Any) -> list[dict[str, Any]]:
    return [{**field, "key": f"k{number}", "operator": "Exists"} for number in range(most)]


OVER: dict[limits.Limit, tuple[dict[str, Any], dict[str, Any]]] = {
    limits.LABELS: ({"labels": {f"l{number}": "" for number in range(65)}}, {}),
    limits.OPTION_CHARACTERS: ({"annotations": {"allaboard.dev/min-members": "x" * 8193}}, {}),
    limits.OWNERS: ({"ownerReferences": [{"name": f"o{number}"} for number in range(65)]}, {}),
    limits.VOLUMES: ({}, {"volumes": [{"name": f"v{number}"} for number in range(65)]}),
    limits.TOLERATIONS: ({}, {"tolerations": several(65)}),
    limits.SELECTORS: ({}, {"nodeSelector": {f"s{number}": "" for number in range(65)}}),
    limits.TERMS: ({}, affinity(*[{"matchExpressions": []}] * 65)),
    limits.REQUIREMENTS: ({}, affinity(*[{"matchExpressions": several(33)}] * 2)),
    limits.VALUES: ({}, affinity({"matchExpressions": several(3, values=[f"v{number}" for number in range(100)])})),
    limits.CHARACTERS: ({}, {"tolerations": [{"key": "x" * 254}]}),
    limits.PORTS: ({}, {"containers": [{"ports": [{"hostPort": number} for number in range(1, 130)]}]}),
    limits.POD_TERMS: ({}, affinity(*[selector()] * 17, kind="podAntiAffinity")),
    limits.POD_EXPRESSIONS: ({}, affinity(selector(*several(9)), kind="podAntiAffinity")),
    limits.POD_VALUES: (
        {},
        affinity(selector({"key": "k", "operator": "In", "values": [f"v{number}" for number in range(33)]}), kind="podAntiAffinity"),
    ),
    limits.POD_NAMESPACES: (
        {},
        affinity({**selector(), "namespaces": [f"n{number}" for number in range(17)]}, kind="podAntiAffinity"),
    ),
    limits.AFFINITY_TERMS: ({}, affinity(*[selector()] * 17, kind="podAffinity")),
    limits.SPREADS: ({}, {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}] * 17}),
}


@pytest.mark.parametrize("limit", OVER, ids=lambda limit: limit.name)
def test_a_pod_over_a_size_limit_has_an_error_that_names_the_limit_and_is_charged_for_its_requests(limit: limits.Limit) -> None:
    metadata, spec = OVER[limit]
    pod = pod_from(raw_pod(metadata, spec), reading=Reading(ours=OURS))
    assert pod.over == (limit.name,)
    assert f"more than the {limit.most} that are supported" in pod.malformed
    assert limit.words in pod.malformed
    assert "containers" in spec or pod.spec.amount("cpu") == 2000


@pytest.mark.parametrize("limit", OVER, ids=lambda limit: limit.name)
def test_a_pod_of_another_scheduler_that_exceeds_a_size_limit_is_charged_for_its_requests(limit: limits.Limit) -> None:
    metadata, spec = OVER[limit]
    pod = pod_from(raw_pod(metadata, spec, "other"), reading=Reading(ours=OURS))
    assert "containers" in spec or pod.spec.amount("cpu") == 2000
    assert (pod.key, pod.node_name, pod.is_bound) == ("evil/p", "n1", True)
    assert (pod.options, pod.owner, pod.spec.claims, pod.spec.images) == ((), None, (), ())
    assert len(pod.labels) <= limits.LABELS.most


def test_the_first_anti_affinity_terms_of_a_pod_of_another_scheduler_are_kept_and_too_large_terms_left_out() -> None:
    too_large = selector(*several(9))
    terms = [selector({"key": f"k{number}", "operator": "Exists"}) for number in range(40)]
    pod = pod_from(raw_pod({}, affinity(too_large, *terms, kind="podAntiAffinity"), "other"), reading=Reading(ours=OURS))
    assert [term.expressions[0].key for term in pod.spec.anti_affinity] == [f"k{number}" for number in range(15)]
    assert pod.over == ("anti_affinity_terms",)


@pytest.mark.parametrize("scheduler", ["allaboard", "other"])
def test_only_the_first_containers_of_a_pod_are_charged_if_it_has_too_many(scheduler: str) -> None:
    containers = [{"name": f"c{number}", "resources": {"requests": {"cpu": "1"}}} for number in range(MANY)]
    pod = pod_from(raw_pod({}, {"containers": containers}, scheduler), reading=Reading(ours=OURS))
    assert pod.spec.amount("cpu") == 64_000
    assert pod.over == ("containers",)


def test_cpu_and_memory_are_charged_beside_any_number_of_other_resources() -> None:
    requests = {f"x.y/{number}": "1" for number in range(MANY)} | {"cpu": "3", "memory": "1Gi"}
    pod = pod_from(raw_pod({}, {"containers": [{"name": "c", "resources": {"requests": requests}}]}, "other"), reading=Reading(ours=OURS))
    assert (pod.spec.amount("cpu"), pod.spec.amount("memory")) == (3000, 2**30)
    assert pod.over == ("quantities",)
    assert len(pod.spec.requests) <= 6


def test_among_many_unknown_options_only_the_first_is_kept_and_without_its_value() -> None:
    annotations = {f"allaboard.dev/o{number}": "x" * 1000 for number in range(MANY)} | {"allaboard.dev/objective": "spread"}
    pod = pod_from(raw_pod({"annotations": annotations}), reading=Reading(ours=OURS))
    assert pod.options == (("o0", ""), ("objective", "spread"))


def test_a_stamp_is_read_however_long_the_other_options_are() -> None:
    annotations = {"allaboard.dev/min-members": "x" * 8192, "allaboard.dev/transaction": "abc/3"}
    pod = pod_from(raw_pod({"annotations": annotations}), reading=Reading(ours=OURS))
    assert (pod.stamped_min_member, pod.over) == (3, ("option_characters",))


def test_a_pod_whose_scheduler_has_a_very_long_name_is_charged_for_its_requests() -> None:
    pod = pod_from(raw_pod(scheduler="x" * 100_000), reading=Reading(ours=OURS))
    assert pod.spec.amount("cpu") == 2000
    assert len(pod.scheduler_name) <= limits.CHARACTERS.most


def size_of(value: object) -> int:
    """Return the bytes of a value and of all its parts."""
    if is_dataclass(value):
        return sys.getsizeof(value) + sum(size_of(getattr(value, field.name)) for field in fields(value))
    return sys.getsizeof(value) + (sum(map(size_of, value)) if isinstance(value, tuple) else 0)


texts = st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=3), st.sampled_from([1, 5, 100, 400]))
counts = st.sampled_from([0, 1, 16, 64, 65, 300, MANY])


@st.composite
def hostile_pods(draw: st.DrawFn) -> dict[str, Any]:
    """Draw raw pods with any number of entries in each list, and with texts of any length."""

    def many(what: Any) -> list[Any]:
        return [what(number) for number in range(draw(counts))]

    word = draw(texts)
    expressions = many(lambda number: {"key": f"{word}{number}", "operator": "In", "values": [f"{word}{each}" for each in range(3)]})
    containers = many(
        lambda number: {
            "name": f"{word}{number}",
            "image": f"{word}{number}",
            "ports": [{"hostPort": number + 1, "hostIP": word}],
            "resources": {"requests": {"cpu": f"{number}m", f"{word}/{number}": str(number)}},
        }
    )
    spec = {
        "containers": containers,
        "initContainers": containers,
        "nodeSelector": {f"{word}{number}": word for number in range(draw(counts))},
        "tolerations": many(lambda number: {"key": f"{word}{number}", "value": word}),
        "volumes": many(lambda number: {"persistentVolumeClaim": {"claimName": f"{word}{number}"}}),
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {"nodeSelectorTerms": many(lambda number: {"matchExpressions": expressions})},
                PREFERRED: many(lambda number: {"weight": 1, "preference": {"matchExpressions": expressions}}),
            },
            "podAntiAffinity": {REQUIRED: many(lambda number: {**selector(*expressions), "namespaces": [word] * number})},
        },
    }
    metadata = {
        "labels": {f"{word}{number}": word for number in range(draw(counts))},
        "annotations": {f"allaboard.dev/{word}{number}": word for number in range(draw(counts))} | {"allaboard.dev/role": word},
        "ownerReferences": many(lambda number: {"name": f"{word}{number}", "controller": number == 1}),
    }
    return raw_pod(metadata, spec, draw(st.sampled_from(["allaboard", "other"])))


MOST_BYTES = 750_000


@settings(max_examples=50, deadline=None)
@given(hostile_pods())
def test_size_limits_bound_the_memory_that_the_scheduler_keeps_for_a_pod(raw: dict[str, Any]) -> None:
    pod: Pod = pod_from(raw, reading=Reading(ours=OURS))
    assert size_of(pod) <= MOST_BYTES


@pytest.mark.parametrize("scheduler", ["allaboard", "other"])
def test_a_pod_that_reaches_all_limits_at_once_is_read_completely(scheduler: str) -> None:
    wide = "\N{GRINNING FACE}" * 250
    spec = {
        "nodeSelector": {f"{wide}{number}": wide for number in range(64)},
        "tolerations": [{"key": f"{wide}{number}", "value": wide} for number in range(64)],
        **affinity({"matchExpressions": several(64, values=[f"{wide}{number}" for number in range(2)])}),
        "containers": [{"name": f"c{number}", "image": f"{wide}{number}"} for number in range(64)],
        "volumes": [{"persistentVolumeClaim": {"claimName": f"{wide}{number}"}} for number in range(64)],
    }
    metadata = {"labels": {f"{wide}{number}": wide for number in range(64)}}
    pod = pod_from(raw_pod(metadata, spec, scheduler), reading=Reading(ours=OURS))
    assert (pod.malformed, pod.over) == ("", ())
    assert size_of(pod) <= MOST_BYTES


class Watched(dict[str, Any]):
    """A dict to which a weak reference is possible, so that a test sees when the raw object is freed."""


@pytest.mark.parametrize("scheduler", ["allaboard", "other"])
@pytest.mark.parametrize("limit", OVER, ids=lambda limit: limit.name)
def test_the_record_of_a_pod_keeps_no_reference_to_the_raw_object(limit: limits.Limit, scheduler: str) -> None:
    metadata, spec = OVER[limit]
    raw = Watched(raw_pod(metadata, spec, scheduler))
    end = weakref.ref(raw)
    gc.collect()
    gc.disable()  # so that only the last reference frees the object: for old objects the collector runs hours later
    try:
        pod = pod_from(raw, reading=Reading(ours=OURS))
        del raw
        assert end() is None
        assert pod.name == "p"
    finally:
        gc.enable()
