"""Builds clusters and manifests as files, and runs ``allaboard plan`` on them."""

import json
import shutil
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from allaboard.cli.bundled import example
from allaboard.cli.main import cli

PAIR = "pod-group.scheduling.sigs.k8s.io"
SELECTOR = {"matchLabels": {"app": "w"}}


def node(name: str, **allocatable: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name},
        "status": {"allocatable": {"pods": "110", **allocatable}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def gpu_node(name: str, gpus: int = 4) -> dict[str, Any]:
    return node(name, cpu="8", memory="16Gi", **{"nvidia.com/gpu": gpus})


def pod(
    name: str, *, cpu: Any = "1", labels: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}, **(metadata or {})},
        "spec": {"schedulerName": "allaboard", "containers": [container], **spec},
    }


def template(*, cpu: Any = "1", labels: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod template of a workload; ``SELECTOR`` selects its pods."""
    return {"metadata": {"labels": {"app": "w", **(labels or {})}}, "spec": pod("", cpu=cpu, **spec)["spec"]}


def member(name: str, minimum: Any = "2", gang: str = "g", **more: Any) -> dict[str, Any]:
    return pod(name, labels={f"{PAIR}/name": gang, f"{PAIR}/min-available": minimum}, **more)


class Plan:
    """Runs ``allaboard plan`` in a folder; ``cluster`` and ``manifest`` write its input files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cluster(self, *items: Any, is_whole: bool = True) -> "Plan":
        """Write the snapshot of a cluster. ``is_whole`` adds ended pods of two namespaces, so that no note on missing pods appears."""
        ended = [pod("ended", metadata={"namespace": name}) | {"status": {"phase": "Succeeded"}} for name in ("kube-public", "kube-system")]
        self._write("cluster.json", {"apiVersion": "v1", "kind": "List", "items": [*items, *(ended if is_whole else ())]})
        return self

    def manifest(self, *objects: Any) -> "Plan":
        (self.folder / "gangs.yaml").write_text("\n---\n".join(json.dumps(value) for value in objects))
        return self

    def example(self, name: str) -> "Plan":
        shutil.copy(example(name), self.folder / "gangs.yaml")
        return self

    def run(self, *options: str, files: tuple[str, ...] = ("gangs.yaml",), stdin: str | None = None) -> Result:
        paths = [name if name == "-" else str(self.folder / name) for name in files]
        return CliRunner().invoke(cli, ["plan", "--cluster", str(self.folder / "cluster.json"), "-f", *paths, *options], input=stdin)

    def gangs(self, *options: str, exit_code: int = 0, **more: Any) -> list[dict[str, Any]]:
        result = self.run("-o", "json", *options, **more)
        assert result.exit_code == exit_code, result.output
        found: list[dict[str, Any]] = json.loads(result.stdout)["gangs"]
        return found

    def _write(self, name: str, value: Any) -> None:
        (self.folder / name).write_text(json.dumps(value))


def nodes_of(gang: dict[str, Any]) -> list[str]:
    return [assignment["node"] for assignment in gang["assignments"]]
