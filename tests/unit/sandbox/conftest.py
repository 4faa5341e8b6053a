"""Fixtures: a running sandbox, and a factory of pods."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from allaboard_sandbox import Sandbox

Body = dict[str, Any]


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(startup_delay=0, gang_scheduler_name="allaboard") as running:
        yield running


@pytest.fixture
def pod() -> Callable[..., Body]:
    """Return a function that makes a pod of one container; its extra keyword arguments become fields of the spec."""

    def make(
        name: str = "p", *, requests: Body | None = None, labels: Body | None = None, annotations: Body | None = None, **spec: Any
    ) -> Body:
        container: Body = {"name": "main", "image": "busybox:1"}
        if requests:
            container["resources"] = {"requests": requests, "limits": requests}
        metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}

    return make
