"""The Table form of objects, which ``kubectl get`` prints.

Column names and cell formats are those of kubernetes pkg/printers/internalversion; custom resources define their own columns.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from allaboard_sandbox import clock, jsonpath
from allaboard_sandbox.clock import Clock
from allaboard_sandbox.kinds import Resource
from allaboard_sandbox.store import Body, Record, encode

Cells = list[Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of one kind as (name, type, priority), and the function that fills their cells.

    Columns of priority 1 are shown by ``-o wide`` only.
    """

    columns: Sequence[tuple[str, str, int]]
    cells: Callable[[Body, datetime], Cells]


class TablePresentation:
    """The presentation of records as tables; ``include`` says how much of the object accompanies each row."""

    def __init__(self, now: Clock, include: str = "Metadata") -> None:
        self._now = now
        self._include = include
        self._columns_sent = False

    def page(self, resource: Resource, records: Iterable[Record], metadata: Body) -> bytes:
        """Return records as one table."""
        layout = layout_of(resource)
        rows = [self._row(layout, resource, record) for record in records]
        return encode({**_TABLE, "metadata": metadata, "columnDefinitions": _definitions(resource, layout), "rows": rows})

    def event(self, resource: Resource, record: Record) -> bytes:
        """Return a record as the one-row table of a watch event; only the first event of a watch defines the columns."""
        layout = layout_of(resource)
        columns = None if self._columns_sent else _definitions(resource, layout)
        self._columns_sent = True
        metadata = {"resourceVersion": record.body["metadata"]["resourceVersion"]}
        return encode({**_TABLE, "metadata": metadata, "columnDefinitions": columns, "rows": [self._row(layout, resource, record)]})

    def _row(self, layout: Layout, resource: Resource, record: Record) -> Body:
        row: Body = {"cells": layout.cells(record.body, self._now())}
        if self._include == "Object":
            row["object"] = resource.present(record.body)
        elif self._include != "None":
            row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": record.body["metadata"]}
        return row


_TABLE = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}


def layout_of(resource: Resource) -> Layout:
    """Return the layout of a resource: the built-in layout, the layout of its CRD, or the columns name and age."""
    if resource.custom and resource.columns:
        return _custom_layout(resource)
    return _LAYOUTS.get(resource.table, _NAME_AND_AGE)


def human_duration(elapsed: timedelta) -> str:
    """Return a duration as kubectl prints ages (apimachinery/pkg/util/duration)."""
    seconds = int(elapsed.total_seconds())
    if seconds < 0:
        return "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 2 * 365:
        return f"{days}d"
    return f"{days // 365}y{days % 365}d" if days < 8 * 365 and days % 365 else f"{days // 365}y"


def age(moment: str | None, now: datetime) -> str:
    """Return the age of a time stamp as kubectl prints it; ``<unknown>`` if there is no time stamp."""
    return human_duration(now - clock.parse(moment)) if moment else "<unknown>"


def _definitions(resource: Resource, layout: Layout) -> list[Body]:
    described = {column.name: column.description for column in resource.columns}
    return [
        {
            "name": name,
            "type": type,
            "format": "name" if name == "Name" else "",
            "description": described.get(name, name),
            "priority": priority,
        }
        for name, type, priority in layout.columns
    ]


def _custom_layout(resource: Resource) -> Layout:
    columns = [("Name", "string", 0), *((column.name, column.type, column.priority) for column in resource.columns)]

    def cells(body: Body, now: datetime) -> Cells:
        found: Cells = [body["metadata"]["name"]]
        for column in resource.columns:
            value = jsonpath.first(column.path, body)
            found.append(age(value, now) if column.type == "date" and value is not None else value)
        return found

    return Layout(columns, cells)


def _name_and_age(body: Body, now: datetime) -> Cells:
    return [body["metadata"]["name"], _age(body, now)]


def _pod(body: Body, now: datetime) -> Cells:
    spec, status = body["spec"], body["status"]
    statuses = status.get("containerStatuses") or []
    ready = sum(1 for each in statuses if each.get("ready"))
    restarts = sum(each.get("restartCount", 0) for each in statuses)
    name, count = body["metadata"]["name"], len(spec.get("containers") or ())
    wide = [status.get("podIP"), spec.get("nodeName"), status.get("nominatedNodeName"), None]
    return [name, f"{ready}/{count}", _pod_state(body), restarts, _age(body, now), *(value or "<none>" for value in wide)]


def _pod_state(body: Body) -> str:
    status = body["status"]
    state = status.get("reason") or status.get("phase") or "Unknown"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            state = "SchedulingGated"
    for each in status.get("containerStatuses") or ():
        for phase in ("waiting", "terminated"):
            state = ((each.get("state") or {}).get(phase) or {}).get("reason") or state
    return "Terminating" if "deletionTimestamp" in body["metadata"] else state


def _node(body: Body, now: datetime) -> Cells:
    labels, status = body["metadata"].get("labels") or {}, body.get("status") or {}
    ready = next((each["status"] for each in status.get("conditions") or () if each["type"] == "Ready"), "Unknown")
    state = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    if body["spec"].get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = ",".join(sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))) or "<none>"
    node = status.get("nodeInfo") or {}
    addresses = {each["type"]: each["address"] for each in status.get("addresses") or ()}
    return [
        body["metadata"]["name"],
        state,
        roles,
        _age(body, now),
        node.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        node.get("osImage") or "<unknown>",
        node.get("kernelVersion") or "<unknown>",
        node.get("containerRuntimeVersion") or "<unknown>",
    ]


def _event(body: Body, now: datetime) -> Cells:
    involved = body.get("involvedObject") or {}
    seen = body.get("lastTimestamp") or body.get("eventTime") or body.get("firstTimestamp")
    first_seen = body.get("firstTimestamp") or body.get("eventTime")
    source = (body.get("source") or {}).get("component") or body.get("reportingComponent") or ""
    kind = str(involved.get("kind", "")).lower()
    return [
        age(seen, now),
        body.get("type", ""),
        body.get("reason", ""),
        f"{kind}/{involved['name']}" if involved.get("name") else kind,
        involved.get("fieldPath", ""),
        source,
        str(body.get("message", "")).strip(),
        age(first_seen, now),
        body.get("count") or 1,
        body["metadata"]["name"],
    ]


def _deployment(body: Body, now: datetime) -> Cells:
    status = body.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{body['spec']['replicas']}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    return [body["metadata"]["name"], ready, *counts, _age(body, now), *_template(body)]


def _replica_set(body: Body, now: datetime) -> Cells:
    status = body.get("status") or {}
    counts = [body["spec"]["replicas"], status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [body["metadata"]["name"], *counts, _age(body, now), *_template(body)]


def _stateful_set(body: Body, now: datetime) -> Cells:
    ready = f"{(body.get('status') or {}).get('readyReplicas', 0)}/{body['spec']['replicas']}"
    return [body["metadata"]["name"], ready, _age(body, now), *_template(body)[:2]]


def _job(body: Body, now: datetime) -> Cells:
    spec, status = body["spec"], body.get("status") or {}
    wanted = spec.get("completions") or spec.get("parallelism") or 1
    conditions = [each["type"] for each in status.get("conditions") or () if each["status"] == "True"]
    state = next((each for each in ("Complete", "Failed", "Suspended") if each in conditions), "Running")
    lasted = ""
    if status.get("startTime"):
        ended = clock.parse(status["completionTime"]) if status.get("completionTime") else now
        lasted = human_duration(ended - clock.parse(status["startTime"]))
    return [body["metadata"]["name"], state, f"{status.get('succeeded', 0)}/{wanted}", lasted, _age(body, now), *_template(body)]


def _namespace(body: Body, now: datetime) -> Cells:
    return [body["metadata"]["name"], (body.get("status") or {}).get("phase", "Active"), _age(body, now)]


def _service(body: Body, now: datetime) -> Cells:
    spec = body["spec"]
    ports = ",".join(f"{port['port']}/{port['protocol']}" for port in spec.get("ports") or ()) or "<none>"
    address = [spec.get("type", "ClusterIP"), spec.get("clusterIP", "<none>"), "<none>"]
    return [body["metadata"]["name"], *address, ports, _age(body, now), _labels(spec.get("selector"))]


def _lease(body: Body, now: datetime) -> Cells:
    return [body["metadata"]["name"], (body.get("spec") or {}).get("holderIdentity", ""), _age(body, now)]


def _priority_class(body: Body, now: datetime) -> Cells:
    globally = bool(body.get("globalDefault"))
    return [body["metadata"]["name"], body.get("value", 0), globally, _age(body, now), body.get("preemptionPolicy")]


def _budget(body: Body, now: datetime) -> Cells:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    limits = [str(spec.get("minAvailable", "N/A")), str(spec.get("maxUnavailable", "N/A"))]
    return [body["metadata"]["name"], *limits, status.get("disruptionsAllowed", 0), _age(body, now)]


def _config_map(body: Body, now: datetime) -> Cells:
    return [body["metadata"]["name"], len(body.get("data") or ()) + len(body.get("binaryData") or ()), _age(body, now)]


def _secret(body: Body, now: datetime) -> Cells:
    return [body["metadata"]["name"], body.get("type", "Opaque"), len(body.get("data") or ()), _age(body, now)]


def _definition(body: Body, now: datetime) -> Cells:
    return [body["metadata"]["name"], body["metadata"]["creationTimestamp"]]


def _template(body: Body) -> Cells:
    containers = body["spec"]["template"]["spec"].get("containers") or ()
    selector = _labels((body["spec"].get("selector") or {}).get("matchLabels"))
    return [",".join(each["name"] for each in containers), ",".join(str(each.get("image", "")) for each in containers), selector]


def _labels(labels: dict[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"


def _age(body: Body, now: datetime) -> str:
    return age(body["metadata"].get("creationTimestamp"), now)


def _layout(cells: Callable[[Body, datetime], Cells], narrow: str, wide: str = "") -> Layout:
    """Return a layout from column names separated by bars; a column whose name has a # holds integers."""
    columns = [(name, priority) for names, priority in ((narrow, 0), (wide, 1)) for name in names.split("|") if name]
    return Layout([(name.strip("#"), "integer" if "#" in name else "string", priority) for name, priority in columns], cells)


_NAME_AND_AGE = _layout(_name_and_age, "Name|Age")
_WORKLOAD_WIDE = "Containers|Images|Selector"
_LAYOUTS = {
    "pods": _layout(_pod, "Name|Ready|Status|Restarts|Age", "IP|Node|Nominated Node|Readiness Gates"),
    "nodes": _layout(_node, "Name|Status|Roles|Age|Version", "Internal-IP|External-IP|OS-Image|Kernel-Version|Container-Runtime"),
    "namespaces": _layout(_namespace, "Name|Status|Age"),
    "services": _layout(_service, "Name|Type|Cluster-IP|External-IP|Port(s)|Age", "Selector"),
    "configmaps": _layout(_config_map, "Name|Data#|Age"),
    "secrets": _layout(_secret, "Name|Type|Data#|Age"),
    "deployments.apps": _layout(_deployment, "Name|Ready|Up-to-date#|Available#|Age", _WORKLOAD_WIDE),
    "replicasets.apps": _layout(_replica_set, "Name|Desired#|Current#|Ready#|Age", _WORKLOAD_WIDE),
    "statefulsets.apps": _layout(_stateful_set, "Name|Ready|Age", "Containers|Images"),
    "jobs.batch": _layout(_job, "Name|Status|Completions|Duration|Age", _WORKLOAD_WIDE),
    "leases.coordination.k8s.io": _layout(_lease, "Name|Holder|Age"),
    "priorityclasses.scheduling.k8s.io": _layout(_priority_class, "Name|Value#|Global-Default|Age", "PreemptionPolicy"),
    "poddisruptionbudgets.policy": _layout(_budget, "Name|Min Available|Max Unavailable|Allowed Disruptions#|Age"),
    "customresourcedefinitions.apiextensions.k8s.io": _layout(_definition, "Name|Created At"),
    "events": Layout(
        [
            ("Last Seen", "string", 0),
            ("Type", "string", 0),
            ("Reason", "string", 0),
            ("Object", "string", 0),
            ("Subobject", "string", 1),
            ("Source", "string", 1),
            ("Message", "string", 0),
            ("First Seen", "string", 1),
            ("Count", "integer", 1),
            ("Name", "string", 1),
        ],
        _event,
    ),
}
