"""The demo's story of the fair order on a real control plane: it needs an operator with a setting of its own."""

from collections.abc import Iterator

import pytest

from allaboard.cli.stories import STORIES, Stage


@pytest.fixture(scope="module", autouse=True)
def fair_share(alone: None) -> Iterator[None]:
    """Turn the fair order on for the operator that the tests of this module start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLABOARD_FAIR_SHARE__ENABLED", "true")
        yield


async def test_story_of_the_fair_order_ends_as_described(stage: Stage) -> None:
    [story] = [each for each in STORIES if each.name == "fair"]
    await story.run(stage)
