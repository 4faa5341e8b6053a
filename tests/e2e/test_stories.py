"""The demo's stories on a real control plane: the pods are made by the real controllers, and the operator has the rights it ships with."""

import pytest

from allaboard.cli.stories import STORIES, Stage, Story
from tests.cluster import Cluster, Home
from tests.stories import a_job_whose_operator_makes_the_pod_group, a_pod_group_that_is_deleted

from .controlplane.operators import OperatorProcess


# Those that need settings of their own are played by tests/integration, which starts an operator for each.
@pytest.mark.parametrize("story", [story for story in STORIES if not story.settings], ids=lambda story: story.name)
async def test_the_story_ends_as_told(story: Story, stage: Stage) -> None:
    await story.run(stage)


async def test_a_job_whose_operator_makes_the_pod_group_is_scheduled_whole(home: Home, operator: OperatorProcess | None) -> None:
    async with home.open(gang_scheduler_name="allaboard") as cluster:
        await a_job_whose_operator_makes_the_pod_group(cluster)


async def test_a_pod_group_that_is_deleted_releases_nobody_and_holds_who_comes_later(cluster: Cluster) -> None:
    await a_pod_group_that_is_deleted(cluster)
