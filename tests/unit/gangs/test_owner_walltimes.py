"""The walltimes that job operators' objects state for their pods: how they are read, kept, and used for gangs."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allaboard.gangs.job_counts import JobCounts
from allaboard.gangs.owner_walltimes import OWNER_KINDS, OwnerKind, OwnerStore, OwnerWalltime
from allaboard.gangs.owners import Owners
from allaboard.gangs.registry import GangRegistry
from allaboard.model.errors import MalformedError
from allaboard.model.gang import GangKey
from allaboard.model.pod import Owner, Pod
from allaboard.model.walltime import UNKNOWN
from tests.unit.gangs.test_registry import KEY, a_group, a_pod, a_registry

KINDS = {kind.resources[0].kind: kind for kind in OWNER_KINDS}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
LONGEST = 10 * 365 * 86_400.0


def an_object(spec: object, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "train", "namespace": "default", "uid": "u", **metadata}, "spec": spec}


def controlled_by(uid: object, kind: str = "RayJob") -> list[dict[str, object]]:
    return [{"apiVersion": "ray.io/v1", "kind": kind, "name": "r", "uid": uid, "controller": True}]


@pytest.mark.parametrize("name", ["TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"])
def test_walltime_of_a_training_job_is_the_deadline_of_its_run_policy(name: str) -> None:
    assert KINDS[name].read(an_object({"runPolicy": {"activeDeadlineSeconds": 600}})) == OwnerWalltime("u", "", 600.0)
    assert KINDS[name].read(an_object({"activeDeadlineSeconds": 600})).is_empty


def test_walltime_of_a_ray_job_is_its_deadline_and_a_ray_cluster_has_its_controller_only() -> None:
    deadline = {"activeDeadlineSeconds": 600, "runPolicy": {"activeDeadlineSeconds": 60}}
    assert KINDS["RayJob"].read(an_object(deadline)) == OwnerWalltime("u", "", 600.0)
    cluster = an_object(deadline, ownerReferences=controlled_by("ray-job"))
    assert KINDS["RayCluster"].read(cluster) == OwnerWalltime("u", "ray-job", UNKNOWN)


def test_least_time_that_a_training_job_states_counts_as_for_a_batch_job() -> None:
    labels, annotations = {"kueue.x-k8s.io/max-exec-time-seconds": "300"}, {"slurmjob.slinky.slurm.net/timelimit": "10"}
    raw = an_object({"runPolicy": {"activeDeadlineSeconds": 900}}, labels=labels, annotations=annotations)
    assert KINDS["TFJob"].read(raw).walltime == 300.0


@pytest.mark.parametrize("deadline", [None, 0, -5, True, "600", 600.0, [600], {"seconds": 600}])
def test_malformed_deadline_counts_as_unknown(deadline: object) -> None:
    assert KINDS["TFJob"].read(an_object({"runPolicy": {"activeDeadlineSeconds": deadline}})).walltime == UNKNOWN


@pytest.mark.parametrize("uid", ["", "x" * 129, 5, None])
def test_controller_with_an_impossible_uid_counts_as_absent(uid: object) -> None:
    assert KINDS["RayCluster"].read(an_object({}, ownerReferences=controlled_by(uid))).is_empty


@pytest.mark.parametrize("uid", [5, ["u"]])
def test_object_without_a_readable_uid_is_malformed(uid: object) -> None:
    with pytest.raises(MalformedError):
        KINDS["TFJob"].read({"metadata": {"uid": uid}})


@given(kind=st.sampled_from(OWNER_KINDS), spec=JSON, policy=JSON, deadline=JSON, references=JSON, labels=JSON)
@example(kind=OWNER_KINDS[0], spec={}, policy={}, deadline=10**400, references=None, labels=None)
def test_no_spec_makes_reading_fail_or_a_walltime_infinite(
    kind: OwnerKind, spec: Any, policy: Any, deadline: Any, references: Any, labels: Any
) -> None:
    if isinstance(policy, dict):
        policy = {**policy, "activeDeadlineSeconds": deadline}
    if isinstance(spec, dict):
        spec = {**spec, "runPolicy": policy, "activeDeadlineSeconds": deadline}
    raw = an_object(spec, ownerReferences=references, labels=labels, annotations=labels)
    found = kind.read(raw)
    assert found.uid == "u"
    assert found.walltime == UNKNOWN or 0.0 < found.walltime <= LONGEST


def test_store_keeps_only_objects_that_say_something_and_reports_a_recreated_object_as_two() -> None:
    observed: list[tuple[OwnerWalltime | None, OwnerWalltime | None]] = []
    store = OwnerStore(lambda old, new: observed.append((old, new)))
    first, second = OwnerWalltime("u1", "", 60.0), OwnerWalltime("u2", "", 60.0)
    store.upsert("default/other", OwnerWalltime("u3"))
    for record in (first, first, second, OwnerWalltime("u2")):
        store.upsert("default/train", record)
    assert observed == [(None, first), (first, None), (None, second), (second, None)]
    assert not store.known()


def owned(name: str, owner: str) -> Pod:
    return a_pod(name, "2", owner=Owner("kubeflow.org/v1", "TFJob", "train", owner))


def walltime_of(registry: GangRegistry, key: GangKey = KEY) -> float:
    gang = registry.gang(key)
    assert gang is not None
    assert gang.hold is None
    return gang.walltime


def test_gang_is_assembled_again_when_the_walltime_of_its_owner_changes() -> None:
    registry, reported = a_registry(owned("a", "tf"), owned("b", "tf")), []
    registry.listen(reported.append)
    short, long = OwnerWalltime("tf", "", 60.0), OwnerWalltime("tf", "", 90.0)
    for old, new, expected in ((None, short, 60.0), (short, long, 90.0), (long, None, UNKNOWN)):
        registry.observe_owner(old, new)
        assert walltime_of(registry) == expected
    registry.observe_owner(None, OwnerWalltime("another", "", 60.0))
    assert reported == [KEY] * 3


@pytest.mark.parametrize("is_cluster_first", [True, False])
def test_pods_of_a_ray_cluster_have_the_walltime_of_the_ray_job_that_controls_it(is_cluster_first: bool) -> None:
    registry, reported = a_registry(owned("a", "cluster"), owned("b", "cluster")), []
    registry.listen(reported.append)
    records = [OwnerWalltime("cluster", "ray-job"), OwnerWalltime("ray-job", "", 600.0)]
    for record in records[:: 1 if is_cluster_first else -1]:
        registry.observe_owner(None, record)
    assert walltime_of(registry) == 600.0
    registry.observe_owner(records[1], None)
    assert walltime_of(registry) == UNKNOWN
    assert set(reported) == {KEY}
    reported.clear()
    registry.observe_owner(records[0], None)
    registry.observe_owner(None, records[1])
    assert (walltime_of(registry), reported) == (UNKNOWN, [KEY])  # the RayJob no longer controls the owner of these pods


@pytest.mark.parametrize(("job", "expected"), [(0.0, 600.0), (60.0, 60.0)])
def test_launcher_of_an_mpi_job_has_the_walltime_of_its_job_else_of_the_mpi_job(job: float, expected: float) -> None:
    owners = Owners()
    owners.observe_job(None, JobCounts("launcher", "mpi", 1, 1, 0, job))
    owners.observe_walltime(None, OwnerWalltime("mpi", "", 600.0))
    assert (owners.walltime_of("launcher"), owners.walltime_of("mpi")) == (expected, 600.0)


@pytest.mark.parametrize(
    ("first", "second", "group", "expected"),
    [
        ({}, {}, {}, 60.0),
        ({"walltime": 600.0, "options": (("walltime", "10m"),)}, {}, {}, 600.0),
        ({"walltime": 600.0}, {"walltime": 900.0}, {}, 900.0),
        ({}, {}, {"allaboard.dev/walltime": "30m"}, 1800.0),
        ({}, {"owner": None}, {}, UNKNOWN),
        ({}, {"owner": Owner("kubeflow.org/v1", "TFJob", "eval", "other")}, {}, UNKNOWN),
    ],
)
def test_walltime_of_pods_wins_over_that_of_the_pod_group_and_both_over_that_of_the_owner(
    first: dict[str, Any], second: dict[str, Any], group: dict[str, str], expected: float
) -> None:
    owner = Owner("kubeflow.org/v1", "TFJob", "train", "tf")
    registry = a_registry(a_pod("a", "2", **{"owner": owner, **first}), a_pod("b", "2", **{"owner": owner, **second}))
    registry.observe_group(a_group(2, annotations=group))
    registry.observe_owner(None, OwnerWalltime("tf", "", 60.0))
    assert walltime_of(registry) == expected


def test_nothing_is_kept_of_owners_and_pods_that_are_gone() -> None:
    registry = a_registry()
    owners = registry._owners
    pod, record, job = owned("a", "cluster"), OwnerWalltime("cluster", "ray-job"), JobCounts("j", "ray-job", 1, 1, 0)
    registry.observe_pod(None, pod)
    registry.observe_owner(None, record)
    registry.observe_job(None, job)
    assert all(vars(owners).values())
    registry.observe_owner(record, None)
    registry.observe_job(job, None)
    registry.observe_pod(pod, None)
    assert not any(vars(owners).values())
