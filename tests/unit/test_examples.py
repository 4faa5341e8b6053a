"""Tests that the examples have the gangs and requests that their descriptions state."""

from pathlib import Path

import pytest

from allaboard.cli.bundled import NotBundledError, crds, example, examples
from allaboard.cli.stories import STORIES
from allaboard.gangs.membership import membership_of
from allaboard.model.pod import Pod, pod_from
from allaboard.whatif.manifests import read_manifests

SMOKE_GPU_REQUESTS = [(("cpu", 1000), ("pods", 1)), *[(("nvidia.com/gpu", 1), ("pods", 1))] * 4]


def pods_of(path: Path) -> list[Pod]:
    return [pod_from(found.raw) for found in read_manifests([str(path)]).pods]


@pytest.mark.parametrize("path", examples(), ids=lambda path: path.stem)
def test_example_expands_into_valid_gangs_for_allaboard(path: Path) -> None:
    found = read_manifests([str(path)])
    pods = [pod_from(expanded.raw) for expanded in found.pods]
    assert pods
    assert not found.notes
    assert {pod.scheduler_name for pod in pods} == {"allaboard"}
    assert not [pod.malformed for pod in pods if pod.malformed]
    assert not [membership.error for pod in pods if (membership := membership_of(pod)).error]


@pytest.mark.parametrize("path", examples(), ids=lambda path: path.stem)
def test_example_begins_with_a_comment(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_readme_of_the_examples_names_every_example() -> None:
    table = (examples()[0].parent / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in examples() if f"[{path.name}]" not in table] == []


def test_readme_of_the_examples_names_every_story() -> None:
    table = (examples()[0].parent / "README.md").read_text(encoding="utf-8")
    assert [story.name for story in STORIES if f"`{story.name}`" not in table] == []


def test_smoke_test_has_one_parameter_server_and_four_workers_with_gpu_limits() -> None:
    pods = pods_of(example("tfjob-smoke-gpu"))
    assert [pod.name for pod in pods] == ["tf-smoke-gpu-ps-0", *(f"tf-smoke-gpu-worker-{index}" for index in range(4))]
    assert [pod.spec.requests for pod in pods] == SMOKE_GPU_REQUESTS
    assert {(membership_of(pod).key.name, membership_of(pod).min_member) for pod in pods} == {("tf-smoke-gpu", 5)}


def test_example_with_two_jobs_has_two_gangs() -> None:
    assert {membership_of(pod).key.name for pod in pods_of(example("two-jobs.yaml"))} == {"tf-first", "tf-second"}


@pytest.mark.parametrize("minimum", [3, 4])
def test_example_nginx_has_six_replicas_of_three_cpu(minimum: int) -> None:
    pods = pods_of(example(f"nginx-min-{minimum}"))
    assert [pod.spec.requests for pod in pods] == [(("cpu", 3000), ("memory", 500 * 2**20), ("pods", 1))] * 6
    assert {membership_of(pod).min_member for pod in pods} == {minimum}


def test_sixteen_of_the_twenty_pods_of_an_example_fit_on_three_nodes() -> None:
    pods = pods_of(example("demo-twenty-pods"))
    amounts = sorted(pod.spec.amount("cpu") for pod in pods)
    assert (len(pods), amounts[-1], sum(amounts[:16]) <= 24_000 < sum(amounts[:17])) == (20, 9000, True)


def test_an_unknown_example_is_refused_with_the_names_of_the_known_ones() -> None:
    with pytest.raises(NotBundledError, match=r"there is no example 'nope'; there are .*tfjob-smoke-gpu"):
        example("nope")


def test_the_crds_of_pod_groups_and_pipelines_are_bundled() -> None:
    assert [crd["metadata"]["name"] for crd in crds()] == ["mlflows.kopf.dev", "podgroups.scheduling.x-k8s.io"]


def test_tight_gang_requests_all_cpu_and_memory_of_its_nine_nodes() -> None:
    pods = pods_of(example("tight-gang"))
    assert len(pods) == 48
    assert {(membership_of(pod).key.name, membership_of(pod).min_member) for pod in pods} == {("tight-gang", 48)}
    assert sum(pod.spec.amount("cpu") for pod in pods) == 3 * (16 + 32 + 24) * 1000
    assert sum(pod.spec.amount("memory") for pod in pods) == 3 * (96 + 64 + 64) * 2**30
