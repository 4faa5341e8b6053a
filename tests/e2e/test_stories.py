"""The demo's stories on a real control plane, with the real controllers and the operator's shipped rights."""

import pytest

from allaboard.cli.stories import STORIES, Stage, Story
from tests.cluster import Cluster, Home
from tests.stories import a_job_whose_operator_makes_the_pod_group, a_pod_group_that_is_deleted

from .controlplane.operators import OperatorProcess


# Stories with settings of their own run in tests/integration, which starts an operator for each.
@pytest.mark.parametrize("story", [story for story in STORIES if not story.settings], ids=lambda story: story.name)
async def test_story_of_the_demo_ends_as_described(story: Story, stage: Stage) -> None:
    await story.run(stage)


async def test_job_whose_pod_group_its_operator_creates_is_scheduled_whole(home: Home, operator: OperatorProcess | None) -> None:
    async with home.open(gang_scheduler_name="allaboard") as cluster:
        await a_job_whose_operator_makes_the_pod_group(cluster)


async def test_deleted_pod_group_releases_no_pod_and_holds_later_pods(cluster: Cluster) -> None:
    await a_pod_group_that_is_deleted(cluster)
