"""A small blocking client of the API server, which prepares clusters for tests. The operator's own client is under test."""

import base64
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

from allaboard_sandbox import ApiError

from .access import Access

Body = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that an API server serves, with the parts of its path."""

    group_version: str
    plural: str
    kind: str
    namespaced: bool

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        root = f"/apis/{self.group_version}" if "/" in self.group_version else f"/api/{self.group_version}"
        within = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{within}/{self.plural}" + (f"/{name}" if name else "") + (f"/{subresource}" if subresource else "")


class Api:
    """Sends requests to one API server, and returns the answers as plain JSON. Raises ``ApiError``."""

    def __init__(self, access: Access) -> None:
        self.url = access.url
        headers = {"Authorization": f"Bearer {access.token}"} if access.token else {}
        self._pool = urllib3.PoolManager(ssl_context=access.tls(), headers=headers, maxsize=8, retries=False, timeout=30.0)
        self._resources: dict[str, Resource] = {}
        self._lock = threading.Lock()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Body:
        headers = {**self._pool.headers, "Content-Type": content_type, "Accept": "application/json"}
        payload = None if body is None else json.dumps(body).encode()
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        response = self._pool.request(method, url, body=payload, headers=headers)
        if response.status >= 400:
            raise _error(response.status, response.data)
        answer: Body = json.loads(response.data)
        uid = (answer.get("metadata") or {}).get("uid")
        if response.status == 201 and uid and not (query or {}).get("dryRun"):
            self.note_created(f"{path}/{answer['metadata']['name']}" if method == "POST" else path, uid)
        return answer

    def note_created(self, path: str, uid: str) -> None:
        """Do nothing; subclasses may note each object that a request has created."""

    def send(self, method: str, path: str, payload: bytes = b"") -> int:
        """Send a request, and return the status of the answer, which isn't parsed."""
        headers = {**self._pool.headers, "Content-Type": "application/json"}
        return int(self._pool.request(method, f"{self.url}{path}", body=payload or None, headers=headers).status)

    def find(self, path: str) -> Body | None:
        """Return the object at ``path``; None if there is none, or if the server doesn't answer yet."""
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        except urllib3.exceptions.HTTPError:
            return None

    def is_ready(self) -> bool:
        """Return whether the API server reports that it is ready."""
        return self.answers(f"{self.url}/readyz")

    def answers(self, url: str) -> bool:
        """Return whether a probe of ``url`` is answered with status 200."""
        try:
            return bool(self._pool.request("GET", url, timeout=2.0).status == 200)
        except urllib3.exceptions.HTTPError:
            return False

    def items(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[Body]:
        """Yield all items of a list, page by page."""
        continuation = ""
        while True:
            paging = {"limit": str(_PAGE)} | ({"continue": continuation} if continuation else {})
            page = self.request("GET", path, query={**(query or {}), **paging})
            yield from page["items"]
            continuation = page["metadata"].get("continue") or ""
            if not continuation:
                return

    def apply(self, obj: Body) -> Body:
        """Create an object, or set the stated fields of an existing one (server-side apply)."""
        resource = self.resource(str(obj["kind"]), str(obj["apiVersion"]))
        path = resource.path(namespace_of(obj), obj["metadata"]["name"])
        return self.request("PATCH", path, obj, {"fieldManager": "allaboard-tests", "force": "true"}, APPLY_PATCH)

    def resource(self, kind: str, group_version: str = "") -> Resource:
        """Return the resource of a kind or plural. Raises ``ApiError`` 404 if none is served."""
        for attempt in range(2):
            with self._lock:
                found = self._resources.get(f"{group_version}/{kind}" if group_version else kind)
                if found is not None:
                    return found
                if attempt == 0:
                    self._discover()
        raise ApiError(404, "NotFound", f"no resource {kind} in {group_version or 'any version'} is served")

    def write_secret(self, path: str, folder: Path) -> None:
        """Write each key of a Secret as a file, atomically: another process may be reading files of another control plane."""
        for name, value in self.request("GET", path)["data"].items():
            new = folder / f".{name}.{os.getpid()}"
            new.write_bytes(base64.b64decode(value))
            new.replace(folder / name)

    def _discover(self) -> None:
        self._resources.clear()
        for root in ("/apis", "/api"):
            answer = json.loads(self._pool.request("GET", f"{self.url}{root}", headers={**self._pool.headers, "Accept": _DISCOVERY}).data)
            for group in answer["items"]:
                for version in reversed(group["versions"]):
                    name = group["metadata"].get("name")
                    group_version = f"{name}/{version['version']}" if name else version["version"]
                    for each in version.get("resources", ()):
                        kind = each.get("responseKind", {}).get("kind", "")
                        resource = Resource(group_version, each["resource"], kind, each["scope"] == "Namespaced")
                        for key in (kind, each["resource"]):
                            self._resources[key] = self._resources[f"{group_version}/{key}"] = resource


def namespace_of(obj: Body) -> str:
    return str(obj["metadata"].get("namespace") or "default")


def _error(status: int, payload: bytes) -> ApiError:
    try:
        body = json.loads(payload)
        return ApiError(status, str(body.get("reason", "")), str(body.get("message", "")))
    except ValueError:
        return ApiError(status, "", payload.decode(errors="replace").strip())
