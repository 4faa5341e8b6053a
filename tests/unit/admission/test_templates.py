"""Tests which pod templates of a workload are found, and how many entries are visited to find them."""

from collections.abc import ItemsView, Iterator
from typing import Any

import pytest

from allaboard.admission.templates import PATHS, templates_in

MOST = 64
TEMPLATE = {"metadata": {}}


class CountedList(list[Any]):
    """Counts how many of its entries were visited."""

    seen = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.seen += 1
            yield each


class CountedMap(dict[str, Any]):
    """Counts how many of its entries were visited."""

    seen = 0

    def __iter__(self) -> Iterator[str]:
        for each in super().__iter__():
            self.seen += 1
            yield each

    def items(self) -> Any:
        return ItemsView(self)


@pytest.mark.parametrize(
    ("entry", "count"), [({}, 0), (None, 0), ({"template": {"spec": {"template": TEMPLATE}}}, MOST)], ids=["empty", "null", "template"]
)
def test_search_for_pod_templates_visits_only_the_first_64_entries_of_a_list(entry: object, count: int) -> None:
    jobs = CountedList([entry] * 1000)
    found = list(templates_in("jobset.x-k8s.io", "JobSet", {"spec": {"replicatedJobs": jobs}}))
    assert len(found) == count
    assert jobs.seen == MOST


@pytest.mark.parametrize(("entry", "count"), [({}, 0), (None, 0), ({"template": TEMPLATE}, MOST)], ids=["empty", "null", "template"])
def test_search_for_pod_templates_visits_only_the_first_64_entries_of_a_map(entry: object, count: int) -> None:
    replicas = CountedMap({str(index): entry for index in range(1000)})
    found = list(templates_in("kubeflow.org", "TFJob", {"spec": {"tfReplicaSpecs": replicas}}))
    assert len(found) == count
    assert replicas.seen == MOST


def test_at_most_64_templates_are_found_in_a_workload_that_has_templates_at_several_paths() -> None:
    raw = {"spec": {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": [{"template": TEMPLATE}] * MOST}}
    paths = [path for path, _ in templates_in("ray.io", "RayCluster", raw)]
    assert paths == ["spec.headGroupSpec.template", *(f"spec.workerGroupSpecs[{index}].template" for index in range(MOST - 1))]


def test_no_path_to_pod_templates_leads_through_more_than_one_list_or_map() -> None:
    assert all(path.count("*") <= 1 for paths in PATHS.values() for path in paths)
