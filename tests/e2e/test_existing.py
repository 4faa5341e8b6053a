"""The suite refuses an existing cluster that it could disturb, and leaves a cluster as it was."""

import base64
import http.server
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from allaboard_sandbox import NodeShape, node_object
from tests.cluster import Body, Cluster, Home
from tests.stories import gang_pod

from .controlplane import existing
from .controlplane.access import UnusableError, read_kubeconfig
from .controlplane.client import Api
from .controlplane.existing import ExistingCluster
from .controlplane.guest import GuestHome

OWN_NODE = node_object("own", NodeShape())


@pytest.fixture
async def cluster(alone: None, home: Home, control_plane: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """Yield the suite's own empty cluster in the role of an existing cluster that KUBECONFIG names."""
    if existing.is_wanted():
        pytest.skip("the test needs a cluster of the suite's own, in the role of an existing one")
    async with home.open() as opened:
        monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
        # The suite's own cluster has a training-operator, for which an existing cluster would be refused. These tests need none.
        monkeypatch.setattr(existing, "TRAINING_OPERATOR", "/api/v1/namespaces/default/secrets/none")
        monkeypatch.setattr(ExistingCluster, "start_training_operator", lambda *_: None)
        yield opened


def guest(folder: Path) -> ExistingCluster:
    return ExistingCluster(folder / "guest", is_operator_deployed=False)


@pytest.mark.parametrize("kind", ["pods", "podgroups"])
async def test_tests_refuse_an_existing_cluster_with_objects_in_the_namespace_default(kind: str, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create(gang_pod("theirs"))
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "theirs"}, "spec": {"minMember": 1}}
    cluster.create(group)

    with pytest.raises(UnusableError, match=f"{kind}/theirs"), guest(tmp_path):
        pass


async def test_tests_refuse_an_existing_cluster_that_has_fake_nodes(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_node("theirs")

    with pytest.raises(UnusableError, match="theirs are fake ones"), guest(tmp_path):
        pass


@pytest.mark.parametrize("ends", ["well", "badly"])
async def test_tests_on_an_existing_cluster_remove_only_the_objects_that_they_have_created(
    ends: str, cluster: Cluster, home: Home, tmp_path: Path
) -> None:
    cluster.create(OWN_NODE)
    cluster.create(node_object("cordoned", NodeShape()) | {"spec": {"unschedulable": True}})
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs"}})
    await cluster.wait_for(lambda s: s.get("serviceaccounts", "default", "theirs") is not None)
    cluster.create(gang_pod("theirs", namespace="theirs"))

    with pytest.raises(ZeroDivisionError), guest(tmp_path) as lent:
        async with GuestHome(lent, ()).open() as ours:
            assert cordoned(cluster) == {"own": True, "cordoned": True}
            ours.add_node("fake")
            ours.create(gang_pod("ours"))
            ours.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ours"}})
            assert names(ours, "nodes") == {"fake"}
            assert names(ours, "pods") == {"ours"}
            if ends == "badly":
                raise ZeroDivisionError
        assert names(cluster, "pods") == {"theirs"}
        raise ZeroDivisionError

    assert cordoned(cluster) == {"own": False, "cordoned": True}
    assert names(cluster, "pods") == {"theirs"}
    await cluster.wait_for(lambda s: {"theirs"} == names(s, "namespaces") - {"kubeflow", "allaboard-system"} - SYSTEM)


SYSTEM = {"default", "kube-system", "kube-public", "kube-node-lease"}


def cordoned(cluster: Cluster) -> dict[str, bool]:
    return {node["metadata"]["name"]: bool(node["spec"].get("unschedulable")) for node in cluster.list("nodes")}


def names(cluster: Cluster, kind: str) -> set[str]:
    return {obj["metadata"]["name"] for obj in cluster.list(kind)}


def test_kubeconfig_with_inline_certificates_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kind writes kubeconfigs of this form."""
    authority = trustme.CA()
    user = authority.issue_cert("admin@example.com")
    with _server(authority) as url:
        cluster = {"server": url, "certificate-authority-data": _encoded(authority.cert_pem.bytes())}
        chain = b"".join(pem.bytes() for pem in user.cert_chain_pems)
        inline = {"client-certificate-data": _encoded(chain), "client-key-data": _encoded(user.private_key_pem.bytes())}
        document: Body = {
            "clusters": [{"name": "kind", "cluster": cluster}],
            "users": [{"name": "kind", "user": inline}],
            "contexts": [{"name": "kind", "context": {"cluster": "kind", "user": "kind"}}],
            "current-context": "kind",
        }
        (tmp_path / "config").write_text(yaml.safe_dump(document))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        access = read_kubeconfig(tmp_path)
        assert Api(access).request("GET", "/")["user"] == "admin@example.com"

        (tmp_path / "again").mkdir()
        (tmp_path / "config").write_text(yaml.safe_dump(access.kubeconfig()))
        assert Api(read_kubeconfig(tmp_path / "again")).request("GET", "/")["user"] == "admin@example.com"
        assert Api(access).request("GET", "/") == {"user": "admin@example.com"}


def test_missing_kubeconfig_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))

    with pytest.raises(UnusableError, match="missing"):
        read_kubeconfig(tmp_path)


class _UserHandler(http.server.BaseHTTPRequestHandler):
    """Answers with the name in the client's certificate."""

    def do_GET(self) -> None:
        certificate = self.connection.getpeercert()  # type: ignore[attr-defined]
        body = json.dumps({"user": certificate["subjectAltName"][0][1]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _server(authority: trustme.CA) -> Iterator[str]:
    """Serve HTTPS to clients with a certificate of the authority, and yield the URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _UserHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
