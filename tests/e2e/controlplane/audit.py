"""Reads the writes to an API server, with their users, from its audit log. Only tests that need the log enable it, since it costs time."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

_WRITES = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True, slots=True)
class Write:
    """A write that succeeded. ``agent`` is the client's user agent; ``name`` is empty if the request named no object."""

    user: str
    agent: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str

    @property
    def target(self) -> tuple[str, str, str]:
        """Resource (with its group, as kubectl writes it), namespace and name of the object."""
        return self.resource, self.namespace, self.name


def audit_flags(folder: Path) -> tuple[str, ...]:
    """Return flags that make an API server log every write in ``folder`` before it answers."""
    path = folder / "audit-policy.yaml"
    rules = [{"level": "Metadata", "verbs": list(_WRITES)}, {"level": "None"}]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
    path.write_text(yaml.safe_dump(policy))
    return f"--audit-policy-file={path}", f"--audit-log-path={folder / 'audit.log'}", "--audit-log-mode=blocking-strict"


def writes(folder: Path) -> list[Write]:
    """Return the writes logged in ``folder`` so far, in order, without refusals and dry runs."""
    events = map(json.loads, (folder / "audit.log").read_text().splitlines())
    return [_write(event) for event in events if event["stage"] == "ResponseComplete" and _has_effect(event)]


def _has_effect(event: dict[str, Any]) -> bool:
    return event["responseStatus"]["code"] < 300 and "dryRun" not in parse_qs(urlsplit(event["requestURI"]).query)


def _write(event: dict[str, Any]) -> Write:
    reference = event.get("objectRef") or {}  # reviews have none
    is_namespaced = reference.get("resource") != "namespaces"  # the log says that a Namespace is in itself
    return Write(
        user=event["user"]["username"],
        agent=event.get("userAgent", ""),
        verb=event["verb"],
        resource=f"{reference.get('resource', '')}.{reference.get('apiGroup', '')}".removesuffix("."),
        subresource=reference.get("subresource", ""),
        namespace=reference.get("namespace", "") if is_namespaced else "",
        name=reference.get("name", ""),
    )
