"""What was written to an API server and by whom: its audit log, which only those who want it are made to pay for."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

_WRITES = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True, slots=True)
class Write:
    """A write that has succeeded. ``agent`` is what the client calls itself, ``name`` empty when the server was to choose among many."""

    user: str
    agent: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str

    @property
    def target(self) -> tuple[str, str, str]:
        """Which object: its resource, with the group as kubectl writes it, its namespace and its name."""
        return self.resource, self.namespace, self.name


def audit_flags(folder: Path) -> tuple[str, ...]:
    """Flags by which an API server notes every write in ``folder``, before it answers."""
    path = folder / "audit-policy.yaml"
    rules = [{"level": "Metadata", "verbs": list(_WRITES)}, {"level": "None"}]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
    path.write_text(yaml.safe_dump(policy))
    return f"--audit-policy-file={path}", f"--audit-log-path={folder / 'audit.log'}", "--audit-log-mode=blocking-strict"


def writes(folder: Path) -> list[Write]:
    """What was noted in ``folder`` so far, in order, without refusals and dry runs."""
    events = map(json.loads, (folder / "audit.log").read_text().splitlines())
    return [_write(event) for event in events if event["stage"] == "ResponseComplete" and _has_effect(event)]


def _has_effect(event: dict[str, Any]) -> bool:
    return event["responseStatus"]["code"] < 300 and "dryRun" not in parse_qs(urlsplit(event["requestURI"]).query)


def _write(event: dict[str, Any]) -> Write:
    where = event.get("objectRef") or {}  # a review has none
    is_in_one = where.get("resource") != "namespaces"  # a Namespace is said to be in itself
    return Write(
        user=event["user"]["username"],
        agent=event.get("userAgent", ""),
        verb=event["verb"],
        resource=f"{where.get('resource', '')}.{where.get('apiGroup', '')}".removesuffix("."),
        subresource=where.get("subresource", ""),
        namespace=where.get("namespace", "") if is_in_one else "",
        name=where.get("name", ""),
    )
