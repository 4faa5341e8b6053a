"""Starts Kueue beside a control plane, with the CRDs and webhooks that Kueue's own module ships.

Kueue runs outside the cluster on loopback, like training-operator. Its Service is of type ``ExternalName``, so that the API server calls
its webhooks on this machine. Kueue creates its own certificate: without that, it reads one from a fixed folder below /etc.
"""

from collections.abc import Iterator
from typing import Any

import yaml
from rich.console import Console

from allaboard_sandbox import ApiError

from . import binaries
from .client import Body
from .controlplane import ControlPlane
from .processes import free_ports

NAMESPACE = "kueue-system"
GATE = "kueue.x-k8s.io/admission"
"""Scheduling gate of pods that Kueue hasn't admitted."""
_FRAMEWORKS = ("batch/job", "kubeflow.org/tfjob", "pod")
_CALLED_FOR = {"": ("pods",), "batch": ("jobs",), "kubeflow.org": ("tfjobs",)}
"""API groups and resources whose webhooks are installed, besides those of Kueue's own group."""
_GROUP = "kueue.x-k8s.io"
_KINDS = (
    *("admissionchecks", "clusterqueues", "cohorts", "localqueues", "multikueueclusters", "multikueueconfigs"),
    *("provisioningrequestconfigs", "resourceflavors", "topologies", "workloadpriorityclasses", "workloads"),
)
_CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
"""Kinds whose CRDs have a conversion webhook (config/components/crd/kustomization.yaml). Kueue waits until these CRDs have its CA."""
_SERVICE, _SECRET = "kueue-webhook-service", "kueue-webhook-server-cert"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"


class Kueue:
    """Kueue on one control plane. ``start`` returns once Kueue manages new Jobs, TFJobs and pods that name a queue."""

    def __init__(self, plane: ControlPlane, console: Console | None = None) -> None:
        self._plane, self._api, self._processes = plane, plane.api, plane.processes
        self._folder = plane.folder / "kueue"
        self._registered: list[str] = []
        self._console = console or Console(stderr=True)
        self._webhook, self._health = free_ports(2)

    def __enter__(self) -> "Kueue":
        try:
            self._install()
            self.start()
        except BaseException:
            self._unregister()
            self._processes.stop("kueue")
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the webhooks and CRDs, and stop Kueue last: until the API server forgets a webhook, it must be answered."""
        self._unregister()
        self._processes.wait_until("kueue", lambda: not self._manages_pods())
        for kind in _KINDS:
            self._api.request("DELETE", f"{_CRDS}/{kind}.{_GROUP}")
        self._processes.wait_until("kueue", lambda: not any(self._api.find(f"{_CRDS}/{kind}.{_GROUP}") for kind in _KINDS))
        self._processes.stop("kueue")

    def start(self, **configuration: Any) -> None:
        """Start or restart Kueue; ``configuration`` is merged into its Configuration."""
        self._processes.stop("kueue")
        config = self._folder / "kueue.yaml"
        config.write_text(yaml.safe_dump(self._configuration() | configuration))
        program = self._plane.programs[binaries.KUEUE.name]
        self._processes.start("kueue", [program, f"--config={config}"], {"KUBECONFIG": str(self._plane.kubeconfig)})
        secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/{_SECRET}"
        wanted = {"tls.crt", "tls.key"}
        self._processes.wait_until("kueue", lambda: wanted <= set((self._api.find(secret) or {}).get("data") or {}))
        self._api.write_secret(secret, self._folder)  # as a kubelet mounts it
        self._processes.wait_until("kueue", lambda: self._api.answers(f"http://127.0.0.1:{self._health}/readyz"))
        self._processes.wait_until("kueue", self._manages_pods)

    def _install(self) -> None:
        self._plane.programs |= binaries.ensure([binaries.KUEUE], self._console)
        self._folder.mkdir(exist_ok=True)
        self._api.apply(_read(binaries.TRAINING_OPERATOR, binaries.TFJOB_CRD)[0])
        self._api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self._api.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET, "namespace": NAMESPACE}})
        service = {"type": "ExternalName", "externalName": "localhost"}
        self._api.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": _SERVICE, "namespace": NAMESPACE}, "spec": service})
        for kind in _KINDS:
            (crd,) = _read(binaries.KUEUE, f"config/components/crd/bases/{_GROUP}_{kind}.yaml")
            if kind in _CONVERTED:
                webhook = {"clientConfig": {"service": self._service("/convert")}, "conversionReviewVersions": ["v1"]}
                crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
            self._api.apply(crd)
        for configuration in _read(binaries.KUEUE, "config/components/webhook/manifests.yaml"):
            configuration["metadata"]["name"] = f"kueue-{configuration['metadata']['name']}"
            configuration["webhooks"] = list(self._called(configuration["webhooks"]))
            self._api.apply(configuration)
            plural = f"{configuration['kind'].lower()}s"
            self._registered.append(f"{_WEBHOOKS}/{plural}/{configuration['metadata']['name']}")

    def _unregister(self) -> None:
        while self._registered:
            self._api.request("DELETE", self._registered.pop())

    def _called(self, webhooks: list[Body]) -> Iterator[Body]:
        """Yield the webhooks of Kueue's own kinds and of the kinds that Kueue manages here, as the API server reaches them."""
        for webhook in webhooks:
            ((group,), resources) = webhook["rules"][0]["apiGroups"], webhook["rules"][0]["resources"]
            if group == _GROUP or set(resources) <= set(_CALLED_FOR.get(group, ())):
                webhook["clientConfig"]["service"] = self._service(webhook["clientConfig"]["service"]["path"])
                yield webhook

    def _service(self, path: str) -> Body:
        return {"namespace": NAMESPACE, "name": _SERVICE, "path": path, "port": self._webhook}

    def _configuration(self) -> dict[str, Any]:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._webhook, "certDir": str(self._folder)},
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"qps": 500, "burst": 1000},
            "internalCertManagement": {"enable": True, "webhookServiceName": _SERVICE, "webhookSecretName": _SECRET},
            "integrations": {"frameworks": list(_FRAMEWORKS)},
            "featureGates": {"VisibilityOnDemand": False, "MultiKueue": False},
        }

    def _manages_pods(self) -> bool:
        """Return whether Kueue's webhook gates a new pod that names a queue. The webhooks of other kinds are served with this one."""
        metadata = {"name": "probe", "labels": {"kueue.x-k8s.io/queue-name": "probe"}}
        pod = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "pause"}]}}
        try:
            answer = self._api.request("POST", "/api/v1/namespaces/default/pods", pod, {"dryRun": "All"})
        except ApiError:
            return False
        return any(gate["name"] == GATE for gate in answer["spec"].get("schedulingGates") or ())


def _read(program: binaries.Program, path: str) -> list[Body]:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the CRD of Workloads has ten thousand lines
    return list(yaml.load_all(binaries.module_file(program, path).read_text(), loader))
