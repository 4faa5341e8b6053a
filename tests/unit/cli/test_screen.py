"""Tests of the demo's screen, mostly on a terminal of 80 columns and 24 lines."""

import io
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console, RenderableType

from allaboard.cli.screen import Scene, Screen
from allaboard.cli.stories import STORIES
from allaboard_sandbox import Sandbox

REASON = "podgroup default/learners: 11 of 48 members placeable (minMember 48), needs 16 nvidia.com/gpu where 12 are free; " * 5
DECISION = {
    "gang": "default/learners",
    "outcome": "refused",
    "generations": 3,
    "stoppedBy": "patience",
    "seedScore": 50.0,
    "score": 51.5,
    "durationMs": 12.3,
    "reason": REASON,
}


def a_screen(playing: int = 0, nodes: int = 9) -> Screen:
    """Return a screen with as many nodes as any story has, twenty pods in the queue, and a decision with a long reason."""
    sandbox = Sandbox(controllers=False)
    for number in range(1, nodes + 1):
        sandbox.add_node(f"node-{number}", cpu="16", gpus=4)
    for number in range(20):
        sandbox.create(a_pod(f"pod-with-a-long-name-{number}"))
    scenes = [Scene(story, seconds=20.0, mark="[green]✓") for story in STORIES]
    scenes[playing].caption = "something that takes more than a line to say, and something else, and the rest of it as well"
    return Screen(sandbox, scenes, playing, DECISION, ((40, 50.0), (48, 51.5)))


def a_pod(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "none"}], "schedulerName": "allaboard"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def lines_of(shown: RenderableType, console: Console) -> list[str]:
    return ["".join(segment.text for segment in line).rstrip() for line in console.render_lines(shown, pad=False)]


def a_terminal(width: int = 80, height: int = 24) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height)


@pytest.mark.parametrize("playing", range(len(STORIES)), ids=[story.name for story in STORIES])
def test_demo_shows_nodes_queue_and_decision_beside_the_story_that_plays(playing: int) -> None:
    console = a_terminal()
    lines = lines_of(a_screen(playing).frame(console), console)
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert f" ✓ {STORIES[playing].name} " in "\n".join(lines).replace("  ", " ").replace("  ", " ")
    assert [line.split()[0] for line in lines if line.startswith(" node-")] == [f"node-{number}" for number in range(1, 10)]
    assert any(line.startswith(" queue ") and "pod-with-a-long-name-0" in line for line in lines)
    assert any(line.startswith("default/learners refused: 3 generations") for line in lines)
    assert any("48 members placed" in line for line in lines)


def test_a_tall_terminal_shows_all_stories_of_the_demo() -> None:
    console = a_terminal(height=50)
    lines = "\n".join(lines_of(a_screen().frame(console), console))
    assert all(f" {story.name} " in lines for story in STORIES)


@pytest.mark.parametrize(("width", "height"), [(40, 10), (20, 3), (200, 60)])
def test_terminal_of_any_size_shows_the_story_that_plays(width: int, height: int) -> None:
    console = a_terminal(width, height)
    assert any(" pack" in line for line in lines_of(a_screen().frame(console), console))


def test_list_at_the_end_of_the_demo_has_all_stories_and_their_notes() -> None:
    screen = a_screen()
    screen.scenes[3].note = "placement found by evolution"
    shown = "\n".join(lines_of(screen.programme(), a_terminal()))
    assert all(f" {story.name} " in shown for story in STORIES)
    assert "placement found by evolution" in shown


def test_picture_of_the_demo_shows_every_story_and_node_and_loads_no_other_file() -> None:
    picture = ElementTree.fromstring(a_screen().picture())
    shown = " ".join(picture.itertext())
    assert [name for name in (*(story.name for story in STORIES), "node-1", "default/learners") if name not in shown] == []
    drawn = ElementTree.tostring(picture, encoding="unicode")
    assert "@font-face" not in drawn and "href" not in drawn and "url(" in drawn
    assert [url for url in re.findall(r"url\(([^)]*)\)", drawn) if not url.strip("\"'").startswith("#")] == []
