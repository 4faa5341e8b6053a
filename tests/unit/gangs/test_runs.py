"""The runs of a gang: the run that each pod belongs to, and what the current run still needs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.gangs import runs as runs_module
from allaboard.gangs.job_counts import JobCounts, job_counts_from
from allaboard.gangs.registry import GangRegistry
from allaboard.gangs.runs import runs_of
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Owner, Pod

KEY = GangKey("default", "gang")
NAME, MINIMUM = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
INDEX = "batch.kubernetes.io/job-completion-index"
FIRST_BIND = 100.0
Kind = Literal["ReplicaSet", "Job", "TFJob", ""]
VERSIONS = {"ReplicaSet": "apps/v1", "Job": "batch/v1", "TFJob": "kubeflow.org/v1"}


def a_pod(
    name: str,
    state: str = "waits",
    *,
    kind: Kind = "",
    owner: str = "o",
    run: str = "a",
    created: float = 0.0,
    minimum: int = 4,
    labels: Mapping[str, str] = {},  # never written to
    index: int | None = None,
    bound_at: float = FIRST_BIND,
) -> Pod:
    """Return a pod that ``waits``, or was bound in ``run``: it is ``bound``, ``succeeded``, ``failed`` or terminating (``ends``)."""
    phases = {"succeeded": "Succeeded", "failed": "Failed", "bound": "Running"}
    own = {NAME: "gang", MINIMUM: str(minimum), **labels} | ({INDEX: str(index)} if index is not None else {})
    pod = Pod(
        "default",
        name,
        f"uid-{name}",
        "1",
        created,
        "allaboard",
        "",
        phases.get(state, "Pending"),
        0,
        SchedulingSpec((("pods", 1),)),
        labels=tuple(sorted(own.items())),
        owner=Owner(VERSIONS[kind], kind, owner, owner) if kind else None,
        is_terminating=state == "ends",
    )
    return pod if state == "waits" else replace(pod, node_name="n1", transaction=run, stamped_min_member=minimum, bound_at=bound_at)


def several(text: str, **parts: object) -> list[Pod]:
    """Return pods such as ``3 succeeded, 1 bound, 2 wait``. Waiting pods were created after the first bind."""
    pods = []
    for part in text.split(", "):
        number, state = part.split()
        state = "waits" if state == "wait" else state
        for _ in range(int(number)):
            created = FIRST_BIND + 10 if state == "waits" else 0.0
            pods.append(a_pod(f"p{len(pods)}{parts.get('owner', '')}", state, **{"created": created, **parts}))  # type: ignore[arg-type]
    return pods


def a_job(uid: str = "o", *, parallelism: int = 4, completions: int | None = 4, done: int = 0, root: str = "") -> JobCounts:
    return JobCounts(uid, root or uid, parallelism, completions, done)


def gang_of(pods: list[Pod], *jobs: JobCounts) -> Gang:
    registry = GangRegistry(["allaboard"])
    for job in jobs:
        registry.observe_job(None, job)
    for pod in pods:
        registry.observe_pod(None, pod)
    gang = registry.gang(KEY)
    assert gang is not None
    return gang


def next_step_of(gang: Gang) -> str:
    """Return the next step of a gang: held, ``rests``, ``awaits`` pods, or ``starts`` so many of its candidates."""
    if gang.hold:
        return gang.hold.reason
    if not gang.candidates:
        return "rests" if gang.is_whole else "awaits"
    return "awaits" if gang.awaits_pods else f"starts {gang.least} of {len(gang.candidates)}"


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ("4 wait", "starts 4 of 4"),
        ("3 wait", "awaits"),
        ("4 bound", "rests"),
        ("3 bound, 1 wait", "starts 1 of 1"),  # a member of the run is lost
        ("4 bound, 1 wait", "starts 1 of 1"),  # surplus
        ("4 succeeded, 4 wait", "starts 4 of 4"),  # the next run
        ("4 succeeded, 3 wait", "awaits"),
        ("3 succeeded, 1 bound, 4 wait", "starts 4 of 4"),  # the next run, beside the last member of the first
        ("3 succeeded, 1 bound, 3 wait", "awaits"),
        ("2 succeeded, 1 bound, 1 wait", "starts 1 of 1"),  # a member of the run is lost
        ("2 succeeded, 1 bound, 4 wait", "starts 4 of 4"),  # as many pods as the minimum are the next run
        ("3 succeeded, 1 failed, 1 wait", "awaits"),  # no pod is bound: a run of bare pods has ended
    ],
)
def test_next_step_for_a_gang_of_bare_pods_follows_from_the_state_of_its_pods(pods: str, expected: str) -> None:
    assert next_step_of(gang_of(several(pods))) == expected


@pytest.mark.parametrize(
    ("pods", "job", "expected"),
    [
        ("4 wait", a_job(), "starts 4 of 4"),
        ("4 bound, 2 wait", a_job(parallelism=6, completions=6), "starts 1 of 2"),  # surplus
        ("2 succeeded, 1 bound, 1 failed, 1 wait", a_job(done=2), "starts 1 of 1"),
        ("3 succeeded, 1 failed, 1 wait", a_job(done=3), "starts 1 of 1"),
        ("1 wait", a_job(done=3), "starts 1 of 1"),  # the succeeded pods were deleted
        ("4 failed, 3 wait", a_job(), "awaits"),  # all members are lost: the run starts again, and whole
        ("3 succeeded, 1 failed, 4 wait", a_job(completions=8, done=3), "starts 1 of 1"),  # the run ends before the next one starts
        ("4 succeeded, 4 wait", a_job(completions=8, done=4), "starts 4 of 4"),
        ("4 succeeded, 3 wait", a_job(completions=8, done=4), "awaits"),
        ("3 succeeded, 1 bound, 3 wait", a_job(completions=8, done=3), "awaits"),  # the next run needs four pods
        ("4 succeeded, 2 wait", a_job(completions=6, done=4), "starts 2 of 2"),  # the last run is smaller
        ("4 succeeded, 1 wait", a_job(completions=6, done=4), "awaits"),
        ("3 succeeded, 1 bound, 2 wait", a_job(completions=6, done=3), "starts 2 of 2"),
        ("3 succeeded, 1 bound, 3 wait", a_job(completions=8, done=4), "awaits"),  # the bound pod's success isn't seen yet
        ("2 wait", a_job(parallelism=2, completions=2), "awaits"),  # another Job must create the other pods
        ("1 succeeded, 2 bound, 1 wait", a_job(completions=None, done=1), "starts 1 of 1"),  # a work queue creates no more pods
        ("4 wait", None, "starts 4 of 4"),  # an unknown Job
        ("3 succeeded, 1 bound, 3 wait", None, "awaits"),
        ("3 bound, 1 wait", a_job(completions=8, done=1), "awaits"),  # the succeeded pod was deleted: no member is lost
    ],
)
def test_next_step_for_the_pods_of_a_job_follows_from_the_pods_and_the_job(pods: str, job: JobCounts | None, expected: str) -> None:
    assert next_step_of(gang_of(several(pods, kind="Job"), *([job] if job else []))) == expected


def test_success_of_a_pod_is_remembered_after_the_pod_is_deleted() -> None:
    registry = GangRegistry(["allaboard"])
    registry.observe_job(None, a_job(completions=8))
    pods = several("1 succeeded, 3 bound", kind="Job")
    for pod in (*pods, a_pod("next", kind="Job", created=FIRST_BIND + 5)):
        registry.observe_pod(None, pod)
    registry.observe_pod(pods[0], None)
    gang = registry.gang(KEY)
    assert gang is not None
    assert (next_step_of(gang), [pod.name for pod in gang.candidates]) == ("awaits", ["next"])
    registry.observe_job(a_job(completions=8), a_job(completions=8, done=1))
    gang = registry.gang(KEY)
    assert gang is not None
    assert next_step_of(gang) == "awaits"


def test_a_pod_for_a_failed_index_joins_the_run_of_the_failed_pod() -> None:
    ended = [a_pod(f"s{index}", "succeeded", kind="Job", index=index) for index in range(3)]
    failed = a_pod("f", "failed", kind="Job", index=3)
    waiting = [a_pod(f"w{index}", kind="Job", index=index, created=FIRST_BIND + 5) for index in (5, 4, 3, 6)]
    gang = gang_of([*ended, failed, *waiting], a_job(completions=8, done=3))
    assert [pod.name for pod in gang.candidates] == ["w3"]
    assert {pod.name for pod in gang.others} == {"w4", "w5", "w6"}


def test_pod_that_is_older_than_the_first_bind_of_a_run_is_surplus_even_after_a_success() -> None:
    run = several("1 succeeded, 3 bound")
    assert next_step_of(gang_of([*run, a_pod("early", created=0.0)])) == "starts 1 of 1"
    assert next_step_of(gang_of([*run, a_pod("late", created=FIRST_BIND + 1)])) == "awaits"


def test_waiting_pod_of_the_lowest_index_replaces_the_lost_member() -> None:
    """The pod of index 3 was lost and deleted. The Job created the pod of index 4, for the next run, before it recreated index 3."""
    run = [a_pod("s0", "succeeded", kind="Job", index=0), *(a_pod(f"b{index}", "bound", kind="Job", index=index) for index in (1, 2))]
    waiting = [a_pod(f"w{index}", kind="Job", index=index, created=FIRST_BIND + 10 - index) for index in (4, 3)]
    gang = gang_of([*run, *waiting], a_job(completions=8, done=1))
    assert [pod.name for pod in gang.candidates] == ["w3"]


def test_pod_for_a_failed_index_replaces_the_failed_pod_even_if_a_success_is_not_seen_yet() -> None:
    """The Job's status counts three successes, so perhaps no member is lost. The pod's index shows that one is."""
    run = [*(a_pod(f"s{index}", "succeeded", kind="Job", index=index) for index in (0, 1)), a_pod("b2", "bound", kind="Job", index=2)]
    failed, again = a_pod("f3", "failed", kind="Job", index=3), a_pod("w3", kind="Job", index=3, created=FIRST_BIND + 5)
    gang = gang_of([*run, failed, again], a_job(completions=8, done=3))
    assert (next_step_of(gang), [pod.name for pod in gang.candidates]) == ("starts 1 of 1", ["w3"])


def test_completions_that_are_done_lower_the_minimum_only_if_too_few_pods_are_left() -> None:
    """The Job has six completions and the minimum is four, so two are surplus. After three successes the last three start together."""
    job = a_job(parallelism=6, completions=6, done=3)
    assert next_step_of(gang_of(several("2 wait", kind="Job"), job)) == "awaits"
    assert next_step_of(gang_of(several("3 wait", kind="Job"), job)) == "starts 3 of 3"


@pytest.mark.parametrize(("created", "expected"), [(5.0, "starts 1 of 3"), (60.0, "starts 2 of 3")])
def test_second_job_that_reaches_the_minimum_is_surplus_only_if_both_jobs_were_created_together(created: float, expected: str) -> None:
    first = several("2 bound", kind="Job", owner="one", labels={"part": "1"}, minimum=2)
    second = several("3 wait", kind="Job", owner="two", labels={"part": "2"}, minimum=2, created=created)
    assert next_step_of(gang_of([*first, *second], a_job("one"), a_job("two"))) == expected


def test_pods_of_a_job_that_is_not_known_yet_are_not_surplus() -> None:
    first = several("4 bound", kind="Job", owner="one", labels={"part": "1"})
    second = several("2 wait", kind="Job", owner="two", labels={"part": "2"})
    assert next_step_of(gang_of([*first, *second], a_job("one"))) == "awaits"
    assert next_step_of(gang_of([*first, *second], a_job("one"), a_job("two", parallelism=2, completions=2))) == "starts 1 of 2"


@pytest.mark.parametrize(
    ("first", "second", "jobs", "expected"),
    [
        ("4 bound", "4 wait", (a_job("one"), a_job("two")), "starts 4 of 4"),
        ("4 bound", "2 wait", (a_job("one"), a_job("two")), "awaits"),
        ("4 bound", "2 wait", (), "awaits"),  # neither Job is known
        ("4 bound", "2 wait", (a_job("one"),), "awaits"),
        ("4 wait", "4 wait", (a_job("one"), a_job("two")), "starts 4 of 4"),  # the four pods of one Job
        ("2 wait", "4 wait", (a_job("one"), a_job("two")), "starts 4 of 4"),  # the older run waits for pods.
        ("3 bound, 1 wait", "4 wait", (a_job("one"), a_job("two")), "starts 1 of 1"),  # a started run is healed first
        ("3 bound", "4 wait", (a_job("one"), a_job("two")), "awaits"),  # it may never have been whole
        ("3 bound, 1 failed", "4 wait", (a_job("one"), a_job("two")), "starts 4 of 4"),
        ("4 succeeded", "2 wait", (a_job("one", done=4), a_job("two")), "awaits"),
        ("4 bound", "1 wait", (a_job("one"), a_job("two", parallelism=1, completions=1)), "awaits"),  # the same job again, although smaller
    ],
)
def test_next_step_for_two_jobs_that_are_two_runs_follows_from_the_pods_of_both(
    first: str, second: str, jobs: tuple[JobCounts, ...], expected: str
) -> None:
    pods = [*several(first, kind="Job", owner="one"), *several(second, kind="Job", owner="two")]
    assert next_step_of(gang_of(pods, *jobs)) == expected


def next_gang(registry: GangRegistry) -> Gang:
    gang = registry.gang(KEY)
    assert gang is not None
    return gang


def two_jobs(first: str, second: str) -> GangRegistry:
    """Return a registry that knows the Jobs ``one`` and ``two`` of one gang, and these pods of each."""
    registry = GangRegistry(["allaboard"])
    for uid in ("one", "two"):
        registry.observe_job(None, a_job(uid))
    for pod in (*several(first, kind="Job", owner="one", run="first"), *several(second, kind="Job", owner="two", run="second")):
        registry.observe_pod(None, pod)
    return registry


def test_run_that_was_whole_and_waits_for_pods_delays_no_other_run() -> None:
    registry = two_jobs("3 bound", "4 wait")
    assert next_gang(registry).run == "first"  # it may never have been whole
    registry.knows_whole = lambda key, run: (key, run) == (KEY, "first")
    registry.choose_again(KEY)
    assert next_step_of(next_gang(registry)) == "starts 4 of 4"


def test_run_that_does_not_fit_is_deferred_once_and_then_goes_first_again() -> None:
    registry = two_jobs("4 wait", "4 wait")
    first = next_gang(registry)
    assert registry.defer_run(first)
    second = next_gang(registry)
    assert {pod.owner.uid for pod in second.candidates if pod.owner} == {"two"}
    assert not registry.defer_run(second), "no other run is left"
    assert next_gang(registry) == first
    assert registry.defer_run(first)
    registry.defer_no_run(KEY)
    assert next_gang(registry) == first


@pytest.mark.parametrize("second", ["2 wait", "4 bound", "3 bound"])
def test_run_is_not_deferred_if_no_other_run_can_be_bound_now(second: str) -> None:
    registry = two_jobs("4 wait", second)
    registry.knows_whole = lambda key, run: True
    gang = next_gang(registry)
    assert next_step_of(gang) == "starts 4 of 4"
    assert not registry.defer_run(gang)
    assert next_gang(registry) == gang


def test_deferred_runs_are_forgotten_when_their_pods_are_deleted() -> None:
    registry = two_jobs("4 wait", "4 wait")
    assert registry.defer_run(next_gang(registry))
    for pod in next_gang(registry).all_pods:
        registry.observe_pod(pod, None)
    assert not registry._deferred


def test_a_partially_bound_run_goes_before_the_next_run_of_an_older_job() -> None:
    registry = GangRegistry(["allaboard"])
    registry.observe_job(None, a_job("one", completions=8, done=3))
    registry.observe_job(None, a_job("two"))
    first = several("3 succeeded, 1 bound, 4 wait", kind="Job", owner="one", run="first")
    for pod in (*first, *several("3 bound, 1 wait", kind="Job", owner="two", run="second", created=50.0)):
        registry.observe_pod(None, pod)
    gang = next_gang(registry)
    assert (gang.run, next_step_of(gang)) == ("second", "starts 1 of 1")


def test_newest_run_is_chosen_if_no_run_needs_any_pod() -> None:
    assert next_gang(two_jobs("4 bound", "4 bound")).run == "second"


def test_run_that_another_scheduler_has_partially_bound_does_not_count_as_whole() -> None:
    first = [replace(pod, transaction="", stamped_min_member=0) for pod in several("2 bound", kind="Job", owner="one")]
    second = several("4 bound", kind="Job", owner="two", run="second", created=50.0)
    assert next_step_of(gang_of([*first, *second], a_job("one"), a_job("two"))) == "awaits"


def test_run_is_not_deferred_if_its_gang_has_no_other_run() -> None:
    registry = GangRegistry(["allaboard"])
    for pod in several("4 wait"):
        registry.observe_pod(None, pod)
    assert not registry.defer_run(next_gang(registry))


def test_only_the_first_runs_of_a_gang_are_considered_if_the_gang_has_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    gang_of = GangRegistry._gang_of
    monkeypatch.setattr(GangRegistry, "_gang_of", lambda *args, **fields: computed.append("") or gang_of(*args, **fields))
    registry = GangRegistry(["allaboard"])
    for number in range(300):
        for pod in several("4 bound" if number % 2 else "3 bound", kind="TFJob", owner=f"o{number}", run=f"r{number}"):
            registry.observe_pod(None, pod)
    for pod in several("4 wait", kind="TFJob", owner="last", created=1e6):
        registry.observe_pod(None, pod)
    assert next_step_of(next_gang(registry)) == "awaits"
    assert len(computed) <= 65


PS, WORKER = {"volcano.sh/task-spec": "ps"}, {"volcano.sh/task-spec": "worker"}


@pytest.mark.parametrize(
    ("ps", "workers", "minimum", "expected"),
    [
        ("1 wait", "4 wait", 5, "starts 5 of 5"),
        ("1 wait", "3 wait", 5, "awaits"),
        ("1 bound", "4 bound", 5, "rests"),
        ("1 bound", "3 bound, 1 failed, 1 wait", 5, "starts 1 of 1"),
        ("1 wait", "4 bound", 4, "starts 1 of 1"),  # a late pod that wasn't needed is surplus
        ("1 wait", "4 wait", 4, "starts 4 of 5"),  # the workers alone would be enough
        ("1 wait", "4 wait", 1, "starts 1 of 5"),
    ],
)
def test_next_step_for_two_jobs_that_are_one_run_follows_from_the_pods_of_both(ps: str, workers: str, minimum: int, expected: str) -> None:
    pods = [
        *several(ps, kind="Job", owner="ps", labels=PS, minimum=minimum),
        *several(workers, kind="Job", owner="worker", labels=WORKER, minimum=minimum),
    ]
    assert next_step_of(gang_of(pods, a_job("ps", parallelism=1, completions=1), a_job("worker"))) == expected


def test_late_controller_that_reaches_the_minimum_is_part_of_the_run_if_its_role_differs() -> None:
    first = several("2 bound", kind="Job", owner="ps", labels=PS, minimum=2)
    late = several("3 wait", kind="Job", owner="w", labels=WORKER, minimum=2)
    assert next_step_of(gang_of([*first, *late], a_job("ps", parallelism=2, completions=2), a_job("w"))) == "starts 1 of 3"


def test_next_run_of_two_jobs_has_no_pod_of_the_first_run() -> None:
    first = [
        *several("1 bound", kind="Job", owner="ps", labels=PS, minimum=5),
        *several("4 bound", kind="Job", owner="w", labels=WORKER, minimum=5),
    ]
    second = several("1 wait", kind="Job", owner="ps2", labels=PS, minimum=5)
    jobs = [a_job("ps", parallelism=1, completions=1), a_job("w"), a_job("ps2", parallelism=1, completions=1), a_job("w2")]
    assert next_step_of(gang_of([*first, *second], *jobs)) == "awaits"
    second += several("4 wait", kind="Job", owner="w2", labels=WORKER, minimum=5)
    assert next_step_of(gang_of([*first, *second], *jobs)) == "starts 5 of 5"


def test_jobs_of_one_job_set_are_one_run() -> None:
    pods = [*several("1 wait", kind="Job", owner="d", minimum=3), *several("2 wait", kind="Job", owner="w", minimum=3)]
    jobs = [a_job("d", parallelism=1, completions=1, root="set"), a_job("w", parallelism=2, completions=2, root="set")]
    assert next_step_of(gang_of(pods, *jobs)) == "starts 3 of 3"


def test_template_of_each_pod_is_computed_once_however_many_controllers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    template_of = runs_module._template_of
    monkeypatch.setattr(runs_module, "_template_of", lambda pod: computed.append(pod.name) or template_of(pod))
    bound = [a_pod(f"b{number}", "bound", kind="TFJob", owner=f"b{number}", labels={"n": f"b{number}"}) for number in range(100)]
    waiting = [a_pod(f"w{number}", kind="TFJob", owner=f"w{number}", labels={"n": f"w{number}"}) for number in range(100)]
    runs_of([*bound, *waiting], 1, {})
    assert len(computed) == 200


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("4 bound", "1 wait", "starts 1 of 1"),
        ("3 bound", "2 wait", "starts 1 of 2"),
        ("1 bound", "3 bound", "rests"),
        ("4 wait", "1 wait", "starts 4 of 5"),
    ],
)
def test_next_step_in_a_rollout_follows_from_old_and_new_pods(old: str, new: str, expected: str) -> None:
    pods = [*several(old, kind="ReplicaSet", owner="old"), *several(new, kind="ReplicaSet", owner="new")]
    assert next_step_of(gang_of(pods)) == expected


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ("4 bound, 1 succeeded, 1 wait", "starts 1 of 1"),
        ("3 succeeded, 1 failed, 1 wait", "starts 1 of 1"),  # the last worker is recreated
        ("2 succeeded, 2 failed, 1 wait", "awaits"),
        ("4 failed, 3 wait", "awaits"),  # all workers are recreated
    ],
)
def test_next_step_for_pods_of_a_job_operator_follows_from_their_state(pods: str, expected: str) -> None:
    assert next_step_of(gang_of(several(pods, kind="TFJob"))) == expected


def test_job_operators_object_that_is_submitted_again_is_another_run() -> None:
    first = several("4 bound", kind="TFJob", owner="one")
    second = several("3 wait", kind="TFJob", owner="two")
    assert next_step_of(gang_of([*first, *second])) == "awaits"


@pytest.mark.parametrize(
    "raw",
    [
        {"spec": {"parallelism": "4"}},
        {"spec": {"completions": []}},
        {"status": {"succeeded": "x"}},
    ],
)
def test_a_malformed_job_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"whole number|object"):
        job_counts_from({"metadata": {"uid": "u"}, **raw})


def test_counts_of_a_job_are_read_from_its_spec_and_status() -> None:
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "set", "controller": True}
    raw = {
        "metadata": {"uid": "u", "ownerReferences": [owner]},
        "spec": {"parallelism": 4, "completions": 9},
        "status": {"succeeded": 2, "failedIndexes": "0,3-5"},
    }
    assert job_counts_from(raw) == JobCounts("u", "set", 4, 9, 6)
    raw["metadata"] = {"uid": "u", "ownerReferences": [{**owner, "kind": "CronJob"}]}
    assert job_counts_from(raw).root == "u"


def test_gang_with_thousands_of_forged_stamps_is_divided_into_few_runs() -> None:
    pods = [a_pod(f"b{number}", "bound", run=f"{number:x}", bound_at=float(number)) for number in range(2000)]
    pods += [a_pod(f"w{number}", created=1e6) for number in range(2000)]
    runs = runs_of(pods, 4, {})
    assert sum(len(run.members) for run in runs) == len(pods)
    assert len(runs) <= 18


KINDS = st.lists(st.sampled_from(("ReplicaSet", "Job", "TFJob", "")), min_size=1, max_size=2)
PHASES = st.sampled_from(("waits", "waits", "bound", "bound", "succeeded", "failed", "ends"))
MEMBERS = st.lists(
    st.tuples(PHASES, st.sampled_from(("a", "a", "a", "b")), st.sampled_from((0, 0, 0, 1)), st.booleans()), min_size=1, max_size=6
)


@settings(max_examples=500)
@given(KINDS, MEMBERS, st.integers(1, 4), st.integers(0, 2), st.booleans())
def test_shortcut_for_a_gang_of_one_run_agrees_with_the_full_division_into_runs(
    kinds: list[Kind], described: list[tuple[str, str, int, bool]], minimum: int, done: int, has_deleted: bool
) -> None:
    members = [
        a_pod(
            f"p{n}",
            state,
            kind=kinds[controller % len(kinds)],
            owner=f"o{controller}",
            run=run,
            created=n + 200.0 * is_late,
            minimum=minimum,
        )
        for n, (state, run, controller, is_late) in enumerate(described)
    ]
    members.sort(key=lambda pod: pod.created)
    jobs = {uid: JobCounts(uid, uid, 4, 8, done) for uid in ("o0", "o1")}
    deleted = {("o0", "a"): 1} if has_deleted else {}
    by_shortcut = runs_of(members, minimum, jobs, deleted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs_module._Census, "is_one_run", False)
        assert runs_of(members, minimum, jobs, deleted) == by_shortcut


def test_a_pod_of_another_index_does_not_replace_the_pod_of_a_failed_index() -> None:
    """Pod p2 takes the place of p0, which has succeeded, and belongs to the next wave; p1 has failed and gets a pod of its own index."""
    job = a_job(parallelism=2, completions=4, done=1)
    first = [a_pod("p0", "succeeded", kind="Job", minimum=2, index=0), a_pod("p1", "failed", kind="Job", minimum=2, index=1)]
    later = a_pod("p2", "waits", kind="Job", minimum=2, index=2, created=FIRST_BIND + 10)
    own = a_pod("p3", "waits", kind="Job", minimum=2, index=1, created=FIRST_BIND + 20)
    assert next_step_of(gang_of([*first, later], job)) == "awaits"
    gang = gang_of([*first, later, own], job)
    assert ([pod.name for pod in gang.candidates], next_step_of(gang)) == (["p3"], "starts 1 of 1")
