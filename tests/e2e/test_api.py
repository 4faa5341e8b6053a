"""The read-only API beside a real API server, which decides what the holder of each bearer token may read."""

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from allaboard.app import App
from allaboard.settings.options import load_settings
from tests.cluster import Body, Cluster, Home
from tests.stories import bound, gang_pod

from .controlplane.processes import free_ports

_ANOTHER_ADDRESS = "127.0.0.2"  # which can't be reached from elsewhere
_OF_RBAC = "rbac.authorization.k8s.io/v1"
_LISTS = {"podgroups": "scheduling.x-k8s.io", "nodes": ""}


@pytest.fixture(scope="module")
def tokens(alone: None, home: Home, control_plane: Any) -> Iterator[dict[str, str]]:
    """Yield bearer tokens of three users: one may list nothing, one PodGroups of one namespace, and one PodGroups and nodes of all."""
    home.prepare_crds()  # type: ignore[attr-defined]
    api, made = control_plane.api, list[Body]()

    def make(obj: Body) -> None:
        api.apply(obj)
        made.append(obj)

    make(_binding("ClusterRoleBinding", "system:auth-delegator", "allaboard", "allaboard-system"))
    found = {}
    for name, kind, resources in (("nobody", "", ()), ("one", "Role", ("podgroups",)), ("all", "ClusterRole", ("podgroups", "nodes"))):
        make({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}})
        if kind:
            rules = [{"apiGroups": [_LISTS[each]], "resources": [each], "verbs": ["list"]} for each in resources]
            make({"apiVersion": _OF_RBAC, "kind": kind, "metadata": {"name": f"reads-{name}", **_namespace(kind)}, "rules": rules})
            make(_binding(f"{kind}Binding", f"reads-{name}", name, "default"))
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        answer = api.request("POST", f"/api/v1/namespaces/default/serviceaccounts/{name}/token", body)
        found[name] = answer["status"]["token"]
    yield found
    for obj in made:
        resource = api.resource(obj["kind"], obj["apiVersion"])
        api.request("DELETE", resource.path(obj["metadata"].get("namespace"), obj["metadata"]["name"]))


def _namespace(kind: str) -> dict[str, str]:
    return {"namespace": "default"} if kind in ("Role", "RoleBinding") else {}


def _binding(kind: str, role: str, account: str, namespace: str) -> Body:
    return {
        "apiVersion": _OF_RBAC,
        "kind": kind,
        "metadata": {"name": f"{role.replace(':', '-')}-{account}", **_namespace(kind)},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind.removesuffix("Binding"), "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


@asynccontextmanager
async def an_operator(home: Home, cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield the address of the API of an operator on ``cluster``."""
    home.write_operator_kubeconfig(cluster, folder / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
    (port,) = free_ports(1)
    service = {"api_service_port": port, "api_service_address": _ANOTHER_ADDRESS}
    app = App(load_settings({"metrics_port": 0, "api_port": 0, "gpu_metrics": {"source": "off"}, **service}))
    await app.start()
    try:
        async with asyncio.timeout(50):
            await app.scheduling.wait()
        yield f"http://{_ANOTHER_ADDRESS}:{port}/api/v1"
    finally:
        await app.stop()


async def test_each_user_reads_what_the_api_server_allows(
    home: Home, tokens: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with home.open() as cluster:
        cluster.add_node("node-1", cpu="8")
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        async with an_operator(home, cluster, tmp_path, monkeypatch) as url, aiohttp.ClientSession() as session:
            for name in "abc":
                cluster.create(gang_pod(name))
                cluster.create(gang_pod(name, "hidden", namespace="other"))
            await cluster.wait_for(lambda home: len(bound(home)) == 6)

            async def answer(path: str, token: str | None) -> tuple[int, Any]:
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                async with session.get(f"{url}/{path}", headers=headers) as response:
                    return response.status, await response.json()

            async def gangs(user: str) -> tuple[list[str], int]:
                status, body = await answer("gangs", tokens[user])
                assert status == 200
                return [f"{each['namespace']}/{each['name']}" for each in body["gangs"]], body["hidden"]

            for token in (None, "", "invalid"):
                assert (await answer("gangs", token))[0] == 401
            assert await gangs("nobody") == ([], 2)
            assert await gangs("one") == (["default/gang"], 1)
            assert await gangs("all") == (["default/gang", "other/hidden"], 0)
            assert (await answer("nodes", tokens["one"]))[0] == 403
            assert (await answer("gangs/other/hidden", tokens["one"]))[0] == 403
            status, nodes = await answer("nodes", tokens["all"])
            assert (status, [node["name"] for node in nodes["nodes"]]) == (200, ["node-1"])
