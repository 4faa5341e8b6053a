"""Objects that are sent as protobuf are decoded to their JSON form, and malformed ones are refused with a message."""

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard_sandbox import ApiError, Sandbox, requests
from allaboard_sandbox.admission import without_nulls
from allaboard_sandbox.messages import KINDS
from allaboard_sandbox.protobuf import MAGIC, MEDIA_TYPE, MalformedError, UnknownKindError, decode

OBJECTS = json.loads(Path(__file__).with_name("protobuf_objects.json").read_text())["objects"]
HEADERS = {"Content-Type": MEDIA_TYPE, "Accept": f"{MEDIA_TYPE},application/json"}
NAMESPACES = "/api/v1/namespaces"
# Sent by kubectl 1.32 for `kubectl create namespace x`; texts that aren't set are sent as empty texts.
NAMESPACE = bytes.fromhex(
    "6b3873000a0f0a02763112094e616d65737061636512190a110a0178120"
    "01a0022002a0032003800420012001a020a001a002200"
)  # fmt: skip


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def field(number: int, value: int | str | bytes) -> bytes:
    """Return one field as it is sent on the wire."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    payload = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def enveloped(kind: str, *fields: bytes, group_version: str = "v1") -> bytes:
    return MAGIC + field(1, field(1, group_version) + field(2, kind)) + field(2, b"".join(fields))


def read(kind: str, *fields: bytes) -> dict[str, Any]:
    body = decode(enveloped(kind, *fields))
    return {name: value for name, value in body.items() if name not in ("kind", "apiVersion")}


def test_the_protobuf_examples_cover_every_kind() -> None:
    assert {each["json"]["kind"] for each in OBJECTS} == KINDS


@pytest.mark.parametrize("example", OBJECTS, ids=[each["json"]["kind"] for each in OBJECTS])
def test_an_object_with_all_its_fields_decodes_to_its_json_form(example: dict[str, Any]) -> None:
    assert without_nulls(decode(base64.b64decode(example["protobuf"]))) == without_nulls(example["json"])


def test_unset_fields_that_are_sent_as_empty_are_absent_in_json() -> None:
    assert decode(NAMESPACE) == {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "x"}, "spec": {}, "status": {}}


def test_a_protobuf_zero_is_kept_in_fields_in_which_zero_differs_from_unset() -> None:
    assert read("Deployment", field(2, field(1, 0) + field(5, 0) + field(7, 0))) == {"spec": {"replicas": 0}}
    assert read("PriorityClass", field(2, 0) + field(3, 0)) == {"value": 0}


def test_protobuf_numbers_are_signed_and_truncated_to_the_bits_of_their_type() -> None:
    assert read("PriorityClass", field(2, -5)) == {"value": -5}
    assert read("PriorityClass", field(2, 1 << 32 | 7)) == {"value": 7}


def test_a_protobuf_list_of_numbers_may_be_sent_one_by_one_or_packed() -> None:
    def groups(*parts: bytes) -> Any:
        job = read("Job", field(2, field(6, field(2, field(14, b"".join(parts))))))
        return job["spec"]["template"]["spec"]["securityContext"]["supplementalGroups"]

    assert groups(field(4, 7), field(4, 1000)) == [7, 1000]
    assert groups(field(4, varint(7) + varint(1000))) == [7, 1000]


def test_an_int_or_string_is_read_as_a_number_or_a_text() -> None:
    def least(*parts: bytes) -> Any:
        return read("PodDisruptionBudget", field(2, field(1, b"".join(parts))))["spec"]["minAvailable"]

    assert least(field(1, 0), field(2, 3), field(3, "")) == 3
    assert least(field(1, 1), field(2, 0), field(3, "50%")) == "50%"


def test_a_protobuf_message_sent_in_several_pieces_is_merged() -> None:
    assert read("ConfigMap", field(1, field(1, "a")), field(1, field(3, "b"))) == {"metadata": {"name": "a", "namespace": "b"}}


def test_unknown_fields_of_newer_clients_are_ignored() -> None:
    newer = field(999, "text") + field(998, 5) + varint(997 << 3 | 1) + bytes(8) + varint(996 << 3 | 5) + bytes(4)
    assert read("ConfigMap", newer, field(2, field(1, "key") + field(2, "value"))) == {"data": {"key": "value"}}


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"{}", "it doesn't begin with"),
        (NAMESPACE[:-5], "it ends too soon"),
        (enveloped("Namespace", b"\x80"), "it ends within a number"),
        (enveloped("Namespace", b"\x80" * 20), "a number is too long"),
        (enveloped("Namespace", field(1, 5)), "a number stands where a text or a message is expected"),
        (enveloped("PriorityClass", field(2, "five")), "a text or a message stands where a number is expected"),
        (enveloped("Namespace", field(0, 5)), "there is no field 0"),
        (enveloped("Namespace", b"\x0b\x0c"), "field 1 has the wire type 3"),
        (enveloped("Namespace", field(1, field(1, b"\xff"))), "a text isn't UTF-8"),
        (enveloped("Namespace", field(1, field(8, field(1, 1 << 62)))), "a time is out of range"),
        (enveloped("Namespace", field(1, field(17, field(7, field(1, "{"))))), "the managed fields aren't JSON"),
        (NAMESPACE + field(3, "gzip"), "encoded once more"),
    ],
)
def test_a_malformed_object_is_refused_with_its_problem(payload: bytes, problem: str) -> None:
    with pytest.raises(MalformedError, match=problem):
        decode(payload)


@st.composite
def corrupted(draw: st.DrawFn) -> bytes:
    """Draw an encoded object of some kind in which some bytes are changed, missing or added."""
    payload = bytearray(base64.b64decode(draw(st.sampled_from(OBJECTS))["protobuf"]))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(len(MAGIC), len(payload)))
        payload[start : start + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(payload)


@given(corrupted() | st.binary().map(MAGIC.__add__) | st.binary())
def test_any_protobuf_payload_is_decoded_to_an_object_or_refused(payload: bytes) -> None:
    with contextlib.suppress(MalformedError, UnknownKindError):
        body = decode(payload)
        assert body["kind"] in KINDS
        json.dumps(body)


@given(corrupted())
def test_any_decoded_object_is_created_or_refused(payload: bytes) -> None:
    sandbox = Sandbox(controllers=False)
    with contextlib.suppress(ApiError):
        body = requests.decode(MEDIA_TYPE, payload)
        metadata = {**body.get("metadata", {}), "namespace": "default", "resourceVersion": ""}
        sandbox.create({**body, "metadata": metadata})


async def sent(sandbox: Sandbox, payload: bytes, path: str = NAMESPACES, media_type: str = MEDIA_TYPE) -> tuple[int, dict[str, Any]]:
    async with (
        aiohttp.ClientSession(sandbox.url) as session,
        session.post(path, data=payload, headers={**HEADERS, "Content-Type": media_type}) as response,
    ):
        assert response.content_type == "application/json"
        return response.status, await response.json()


async def test_an_object_sent_as_protobuf_is_created_and_answered_as_json(sandbox: Sandbox) -> None:
    status, created = await sent(sandbox, NAMESPACE)
    assert (status, created["metadata"]["name"], created["status"]) == (201, "x", {"phase": "Active"})
    assert sandbox.get("namespaces", "x", "") == created


async def test_a_malformed_body_is_a_bad_request(sandbox: Sandbox) -> None:
    status, answer = await sent(sandbox, NAMESPACE[:-5])
    assert (status, answer["reason"]) == (400, "BadRequest")
    assert answer["message"] == "the object provided is unrecognized (must be of type Object): it ends too soon"


async def test_an_object_of_a_kind_that_the_path_does_not_name_is_a_bad_request(sandbox: Sandbox) -> None:
    status, answer = await sent(sandbox, NAMESPACE, "/apis/apps/v1/namespaces/default/deployments")
    assert (status, answer["reason"]) == (400, "BadRequest")
    assert "does not match the expected API version (apps/v1, Kind=Deployment)" in answer["message"]


async def test_a_kind_that_is_not_read_as_protobuf_is_refused_with_the_accepted_media_types(sandbox: Sandbox) -> None:
    status, answer = await sent(sandbox, enveloped("Pod"), "/api/v1/namespaces/default/pods")
    assert (status, answer["reason"]) == (415, "UnsupportedMediaType")
    expected = "the sandbox doesn't read v1 Pod as protobuf - accepted media types include: application/json, application/yaml"
    assert answer["message"] == expected


async def test_protobuf_media_types_other_than_that_of_kubernetes_are_refused(sandbox: Sandbox) -> None:
    status, answer = await sent(sandbox, NAMESPACE, media_type="application/x-protobuf")
    assert (status, answer["reason"]) == (415, "UnsupportedMediaType")


async def test_a_selector_with_an_unknown_operator_is_refused(sandbox: Sandbox) -> None:
    expression = field(1, "app") + field(2, "Like") + field(3, "web")
    spec = field(2, field(2, expression)) + field(3, field(1, field(11, field(1, "app") + field(2, "web"))))
    deployment = enveloped("Deployment", field(1, field(1, "d")), field(2, spec), group_version="apps/v1")
    status, answer = await sent(sandbox, deployment, "/apis/apps/v1/namespaces/default/deployments")
    assert (status, answer["message"]) == (400, '"Like" is not a valid label selector operator')
