"""The HTTP server of the sandbox: it passes requests to the verbs and answers with JSON, tables or streams."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from aiohttp import web

from allaboard_sandbox import binding, discovery, errors, eviction, lists, requests, scale, watch
from allaboard_sandbox.api import Api, Written
from allaboard_sandbox.faults import Fault, Faults
from allaboard_sandbox.kinds import Resource
from allaboard_sandbox.lists import Page
from allaboard_sandbox.patches import APPLY_PATCH
from allaboard_sandbox.requests import Place, Target
from allaboard_sandbox.store import Body, Record, encode
from allaboard_sandbox.tables import TablePresentation

HEALTH = ("/healthz", "/livez", "/readyz")
MAX_BODY_BYTES = 3 * 1024 * 1024
STREAMED_FROM = 2000
"""Longer lists are sent in pieces of this many records, so that other requests aren't delayed."""


class JsonPresentation:
    """The presentation of records as JSON objects."""

    def item(self, resource: Resource, record: Record) -> bytes:
        """Return a record as a list item; an item of a built-in kind has no kind and apiVersion, which the list states."""
        if resource.custom:
            return self.event(resource, record)
        return encode(_bare(resource.from_stored(record.body))) if resource.from_stored else record.encoded

    def event(self, resource: Resource, record: Record) -> bytes:
        """Return a record as an object with kind and apiVersion."""
        encoded = encode(_bare(resource.from_stored(record.body))) if resource.from_stored else record.encoded
        return resource.header + encoded[1:]


JSON = JsonPresentation()


def struck(faults: Faults, place: Place, request: web.Request, body: Any) -> Fault | None:
    """Count a request, and return the fault that hits it, or None."""
    verb, dry_run = place.verb(request.method, request.query), requests.asks_for_dry_run(request.query, body)
    return faults.strike(verb, place.plural, place.subresource, requests.name_in(place, body), dry_run=dry_run)


async def fail(fault: Fault, request: web.Request, carry_out: Callable[[], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    """Apply a fault to a request, and return the response of the request. If the fault answers with an error, raise the ``ApiError``.

    ``carry_out`` carries the request out.
    """
    await asyncio.sleep(fault.delay)
    if fault.hold and not fault.after:
        await fault.hold.wait()
    if fault.after or not fault.fails:
        response = await carry_out()
        if fault.hold and fault.after:
            await fault.hold.wait()
        if not fault.fails:
            return response
    if fault.drop:
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)
    raise fault.error()


def refused(error: errors.ApiError) -> web.Response:
    """Return the response for an error."""
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after is not None else None
    return _json(encode(error.body()), error.status, headers)


class Server:
    """Handles all HTTP requests to one ``Api``."""

    def __init__(self, api: Api, faults: Faults) -> None:
        self._api = api
        self._faults = faults

    def application(self) -> web.Application:
        """Return the web application that handles all paths."""
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", self._answer)
        return application

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path in HEALTH or path.startswith(("/livez/", "/readyz/")):
            return web.Response(text="ok")
        try:
            place = requests.place_of(path)
            target = requests.target_of(place, self._api.registry) if place is not None else None
            if place is not None and target is None and requests.is_served(place, self._api.registry):
                raise errors.no_such_subresource()
            if place is None or target is None:
                return self._discover(request)
            requests.check_names(place)
            body = requests.decode(request.content_type, await request.read())
            verb = place.verb(request.method, request.query)
            fault = struck(self._faults, place, request, body)
            if fault is None:
                return await self._dispatch(target, verb, request, body)
            return await fail(fault, request, partial(self._dispatch, target, verb, request, body))
        except errors.ApiError as error:
            return refused(error)

    def _discover(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            if request.path == "/openapi/v2" and "protobuf" in request.headers.get("Accept", ""):
                return web.Response(body=discovery.openapi_v2(), content_type=discovery.OPENAPI_V2)
            if "json" not in (accepted := request.headers.get("Accept", "json")) and "*/*" not in accepted:
                return web.Response(status=406, text="406 not acceptable: only JSON is served")
            document = discovery.document(request.path, self._api.registry, request.host)
            if document is not None:
                return _json(encode(document))
        return web.Response(status=404, text="404 page not found\n")

    async def _dispatch(self, target: Target, verb: str, request: web.Request, body: Any) -> web.StreamResponse:
        if wanted := requests.CONTAINER_SUBRESOURCES.get(target.subresource):
            self._api.read(target.resource, target.namespace or "", target.name)
            raise errors.no_containers(target.name, wanted)
        match verb:
            case "watch":
                return await self._watch(target, request)
            case "list":
                return await self._list(target, request)
            case "get":
                return self._get(target, request)
            case "create":
                return self._create(target, request, body)
            case "bind":
                return self._bind(target, request, body)
            case "evict":
                dry_run = requests.write_options_of(request.query).dry_run
                eviction.evict(self._api, target.namespace or "", target.name, body, dry_run=dry_run)
                return _json(encode(_success(code=201)), 201)
            case "update" | "patch":
                return self._write(target, verb, request, body)
            case "delete":
                return self._delete(target, request, body)
            case "deletecollection":
                return await self._delete_collection(target, request, body)
        raise errors.method_not_allowed()

    def _get(self, target: Target, request: web.Request) -> web.Response:
        record = self._api.read(target.resource, target.namespace or "", target.name)
        asked = lists.parsed_revision(request.query.get("resourceVersion", ""))
        if asked > self._api.store.revision:
            raise errors.too_large_revision(asked, self._api.store.revision)
        if target.subresource == "scale":
            return _json(encode(scale.scale_of(target.resource, record)))
        return self._object(target.resource, record, request)

    async def _list(self, target: Target, request: web.Request) -> web.StreamResponse:
        if target.resource.review_status is not None:
            raise errors.method_not_allowed()
        selection, paging = requests.selection_of(target, request.query), requests.paging_of(request.query)
        page = lists.list_page(self._api.store, target.resource, selection, paging)
        if table := self._table(request):
            return _json(table.page(target.resource, page.records, _list_metadata(page)))
        return await _list_response(target.resource, page, request)

    async def _watch(self, target: Target, request: web.Request) -> web.StreamResponse:
        options = requests.watch_options_of(request.query)
        watch.check_options(options)
        selection = requests.selection_of(target, request.query)
        # Compile the selectors before the stream starts, so that a bad selector is answered 400 instead of breaking the stream.
        selection.predicate(target.resource)
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
        await response.prepare(request)
        presentation = self._table(request) or JSON
        try:
            async for lines in watch.watch(self._api.store, target.resource, selection, options, presentation):
                await response.write(lines)
            await response.write_eof()
        except ConnectionError:
            # The client has disconnected, which ends its watch.
            pass
        return response

    def _create(self, target: Target, request: web.Request, body: Body) -> web.Response:
        resource = target.resource
        if target.name:
            raise errors.method_not_allowed()
        if resource.review_status is not None:
            requests.check_object(body)
            review = {**body, "kind": resource.kind, "apiVersion": resource.group_version, "status": resource.review_status}
            return _json(encode(review), 201)
        written = self._api.create(resource, target.namespace or "", body, requests.write_options_of(request.query))
        return self._written(resource, written, request)

    def _bind(self, target: Target, request: web.Request, body: Body) -> web.Response:
        name = target.name or (body.get("metadata") or {}).get("name") or ""
        binding.bind(self._api, target.namespace or "", name, body, requests.write_options_of(request.query))
        return _json(encode(_success(code=201)), 201)

    def _write(self, target: Target, verb: str, request: web.Request, body: Any) -> web.Response:
        resource, namespace, name = target.resource, target.namespace or "", target.name
        options = requests.write_options_of(request.query)
        if not name:
            raise errors.method_not_allowed()
        if verb == "patch" and request.content_type == APPLY_PATCH and not request.query.get("fieldManager"):
            message = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            raise errors.ApiError(422, "Invalid", message)
        if target.subresource == "scale":
            if verb == "patch":
                return _json(encode(scale.patch(self._api, resource, namespace, name, body, request.content_type, options)))
            return _json(encode(scale.replace(self._api, resource, namespace, name, body, options)))
        if verb == "update":
            written = self._api.update(resource, namespace, name, body, subresource=target.subresource, options=options)
        else:
            written = self._api.patch(
                resource, namespace, name, body, patch_type=request.content_type, subresource=target.subresource, options=options
            )
        return self._written(resource, written, request)

    def _delete(self, target: Target, request: web.Request, body: Any) -> web.Response:
        resource = target.resource
        options = requests.delete_options_of(request.query, body)
        record = self._api.delete(resource, target.namespace or "", target.name, options)
        if resource.returns_deleted or "deletionTimestamp" in record.body["metadata"]:
            return self._object(resource, record, request)
        details = {**errors.about(resource, target.name), "uid": record.uid}
        return _json(encode({**_success(), "details": details}))

    async def _delete_collection(self, target: Target, request: web.Request, body: Any) -> web.StreamResponse:
        selection = requests.selection_of(target, request.query)
        options = requests.delete_options_of(request.query, body)
        page = lists.list_page(self._api.store, target.resource, selection)
        for record in page.records:
            self._api.delete(target.resource, *record.key, options)
        return await _list_response(target.resource, page, request)

    def _written(self, resource: Resource, written: Written, request: web.Request) -> web.Response:
        response = self._object(resource, written.record, request, status=201 if written.created else 200)
        if request.query.get("fieldValidation") != "Ignore":
            for warning in written.warnings:
                escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
                response.headers.add("Warning", f'299 - "{escaped}"')
        return response

    def _object(self, resource: Resource, record: Record, request: web.Request, *, status: int = 200) -> web.Response:
        if table := self._table(request):
            metadata = {"resourceVersion": record.body["metadata"].get("resourceVersion", "")}
            return _json(table.page(resource, [record], metadata), status)
        return _json(JSON.event(resource, record), status)

    def _table(self, request: web.Request) -> TablePresentation | None:
        # The first media type that is served is used; kubectl asks for tables first and falls back to plain JSON.
        for media_type in request.headers.get("Accept", "").split(","):
            if "as=Table" in media_type:
                return TablePresentation(self._api.clock, request.query.get("includeObject", "Metadata"))
            if media_type.strip() == "application/json":
                return None
        return None


async def _list_response(resource: Resource, page: Page, request: web.Request) -> web.StreamResponse:
    head = f'{{"kind":"{resource.list_kind}","apiVersion":"{resource.group_version}","metadata":'.encode()
    head += encode(_list_metadata(page)) + b',"items":['
    if len(page.records) <= STREAMED_FROM:
        return _json(head + b",".join(_items(resource, page.records)) + b"]}")
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(head)
    for start in range(0, len(page.records), STREAMED_FROM):
        piece = b",".join(_items(resource, page.records[start : start + STREAMED_FROM]))
        await response.write(b"," + piece if start else piece)
    await response.write(b"]}")
    await response.write_eof()
    return response


def _items(resource: Resource, records: Iterable[Record]) -> Iterable[bytes]:
    return (JSON.item(resource, record) for record in records)


def _list_metadata(page: Page) -> Body:
    metadata: Body = {"resourceVersion": str(page.revision)}
    if page.token:
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def _bare(body: Body) -> Body:
    return {field: value for field, value in body.items() if field not in ("kind", "apiVersion")}


def _success(code: int | None = None) -> Body:
    body: Body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return body if code is None else {**body, "code": code}


def _json(payload: bytes, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=payload, status=status, content_type="application/json", headers=headers)
