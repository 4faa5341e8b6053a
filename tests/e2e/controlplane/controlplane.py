"""Starts a real Kubernetes control plane on loopback, without containers and without root.

It consists of etcd, kube-apiserver, kube-controller-manager and fake kubelets (kwok); kube-scheduler and training-operator are started on
demand. The fake kubelets serve the nodes annotated ``kwok.x-k8s.io/node: fake``; they admit every pod, as kwok does.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from . import binaries
from .access import Access
from .certificates import write_admin_token, write_certificates
from .client import Api
from .processes import Processes, free_ports

NODE_ANNOTATION = ("kwok.x-k8s.io/node", "fake")
STAGES = Path(__file__).with_name("stages.yaml")
ETCD_DATA = "etcd-data"
"""Link in a control plane's folder to the folder of etcd's data, which is in memory if ``/dev/shm`` exists."""
_ETCD_MEMORY = Path("/dev/shm")
_CERTIFICATES = Path("k8s-webhook-server/serving-certs")
"""Folder from which training-operator's webhook server reads its certificate, below the folder for temporary files."""
_LAST_START_MESSAGE = "Registering webhook"
"""The last message that training-operator logs when it starts."""
_BASIC = (binaries.ETCD, binaries.APISERVER, binaries.CONTROLLER_MANAGER, binaries.KWOK)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one control plane: feature gates of all its programs, further flags of the API server, and what runs.

    ``controllers``: the controllers of kube-controller-manager that run; ``*`` for all. Without ``has_kubelets`` no fake kubelets run.
    """

    feature_gates: tuple[str, ...] = ()
    apiserver_flags: tuple[str, ...] = ()
    controllers: tuple[str, ...] = ("*",)
    has_kubelets: bool = True

    @property
    def gates(self) -> list[str]:
        """The feature gates as one flag; empty if there are none."""
        return [f"--feature-gates={','.join(f'{gate}=true' for gate in self.feature_gates)}"] if self.feature_gates else []


class ControlPlane:
    """One control plane with its files in ``folder``. ``start`` returns once the control plane can be used."""

    def __init__(self, folder: Path, options: Options | None = None, console: Console | None = None) -> None:
        self.folder = folder
        self.options = options or Options()
        self.processes = Processes(folder)
        self.kubeconfig = folder / "kubeconfig"
        self._console = console or Console(stderr=True)

    def __enter__(self) -> "ControlPlane":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Build missing programs, then start all. Raises ``MissingToolError`` or ``StartError``, and then leaves no process running."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.programs = binaries.ensure(_BASIC, self._console)
        try:
            self._start_api()
            self._start_controllers()
            if self.options.has_kubelets:
                self.start_kubelets()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop every process, and remove the data."""
        self.processes.stop_all()
        forget_data(self.folder)

    def start_kubelets(self, *, start_pods: bool = True) -> None:
        """Start or restart the fake kubelets; without ``start_pods`` bound pods never run."""
        start_kwok(self.processes, self.programs["kwok"], self.kubeconfig, self.folder, start_pods=start_pods)

    def start_scheduler(self, configuration: Mapping[str, Any] | None = None) -> None:
        """Start kube-scheduler, which most tests don't need. ``configuration`` is merged into its KubeSchedulerConfiguration."""
        self.programs |= binaries.ensure([binaries.SCHEDULER], self._console)
        program = self.programs["kube-scheduler"]
        start_scheduler(self.processes, program, self.kubeconfig, self.folder, configuration, self.options.gates)

    def stop_scheduler(self) -> None:
        """Stop the kube-scheduler that ``start_scheduler`` has started."""
        self.processes.stop("kube-scheduler")

    def start_training_operator(self, gang_scheduler_name: str = "") -> None:
        """Start or restart training-operator for TFJobs; with a name, it creates a PodGroup for each job."""
        self.programs |= binaries.ensure([binaries.TRAINING_OPERATOR], self._console)
        program = self.programs[binaries.TRAINING_OPERATOR.name]
        start_training_operator(self.processes, program, self.api, self.kubeconfig, gang_scheduler_name)

    def describe(self) -> str:
        """Return the running programs with their versions."""
        parts = (
            f"{program.name} {binaries.version_of(program, self.programs[program.name])}"
            for program in binaries.PROGRAMS
            if program.name in self.programs
        )
        return ", ".join(parts)

    @property
    def version(self) -> str:
        """Version of Kubernetes that the API server reports."""
        return str(self.api.request("GET", "/version")["gitVersion"])

    @property
    def access(self) -> Access:
        """The administrator's access to the API server."""
        return Access(self.url, self.folder / "ca.crt", self.token)

    @property
    def api(self) -> Api:
        """A client that may do anything."""
        return Api(self.access)

    def _start_api(self) -> None:
        client, peer, secure = free_ports(3)
        write_certificates(self.folder)
        self.url, self.token = f"https://127.0.0.1:{secure}", write_admin_token(self.folder)
        self.kubeconfig.write_text(yaml.safe_dump(self.access.kubeconfig(), sort_keys=False))
        in_memory = _ETCD_MEMORY if _ETCD_MEMORY.is_dir() else self.folder
        data = Path(tempfile.mkdtemp(prefix="allaboard-etcd-", dir=in_memory))
        (self.folder / ETCD_DATA).symlink_to(data)
        etcd, own = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self.processes.start("etcd", [self.programs["etcd"], *_etcd_flags(etcd, own, data)])
        flags = [*_apiserver_flags(self.folder, secure, etcd), *self.options.gates, *self.options.apiserver_flags]
        self.processes.start("kube-apiserver", [self.programs["kube-apiserver"], *flags])
        self.processes.wait_until("kube-apiserver", self.api.is_ready)

    def _start_controllers(self) -> None:
        (port,) = free_ports(1)
        flags = (
            f"--kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.folder / 'service-accounts.key'}",
            f"--root-ca-file={self.folder / 'ca.crt'}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--concurrent-gc-syncs=20",
            "--terminated-pod-gc-threshold=0",
            f"--controllers={','.join(self.options.controllers)}",
            *self.options.gates,
        )
        self.processes.start("kube-controller-manager", [self.programs["kube-controller-manager"], *flags])
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.processes.wait_until("kube-controller-manager", lambda: self.api.find(account) is not None)


def forget_data(folder: Path) -> None:
    """Remove the data of etcd."""
    link = folder / ETCD_DATA
    if link.is_symlink():
        shutil.rmtree(link.resolve(), ignore_errors=True)
        link.unlink()


def start_kwok(processes: Processes, program: Path, kubeconfig: Path, folder: Path, *, start_pods: bool) -> None:
    """Start or restart fake kubelets for the annotated nodes of any cluster."""
    processes.stop("kwok")
    stages = [stage for stage in yaml.safe_load_all(STAGES.read_text()) if start_pods or stage["metadata"]["name"] != "pod-start"]
    config = folder / "stages.yaml"
    config.write_text(yaml.safe_dump_all(stages))
    (port,) = free_ports(1)
    flags = (
        f"--kubeconfig={kubeconfig}",
        f"--config={config}",
        f"--manage-nodes-with-annotation-selector={'='.join(NODE_ANNOTATION)}",
        "--node-ip=127.0.0.1",
        "--node-lease-duration-seconds=0",
        f"--server-address=127.0.0.1:{port}",
    )
    processes.start("kwok", [program, *flags])


def start_scheduler(
    processes: Processes,
    program: Path,
    kubeconfig: Path,
    folder: Path,
    configuration: Mapping[str, Any] | None = None,
    flags: Sequence[str] = (),
) -> None:
    """Start kube-scheduler for any cluster that has none."""
    (port,) = free_ports(1)
    body = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
        **(configuration or {}),
    }
    config = folder / "kube-scheduler.yaml"
    config.write_text(yaml.safe_dump(body))
    processes.start("kube-scheduler", [program, f"--config={config}", "--bind-address=127.0.0.1", f"--secure-port={port}", *flags])
    processes.wait_until("kube-scheduler", lambda: "Serving securely" in processes.tail("kube-scheduler", 500))


def start_training_operator(processes: Processes, program: Path, api: Api, kubeconfig: Path, gang_scheduler_name: str) -> None:
    """Start or restart training-operator for any cluster, with the objects and files that its webhook server needs.

    Its certificate rotator fills a Secret, and waits until a kubelet mounts the Secret as a folder. Here the folder is filled from the
    Secret. Each training-operator has a folder of its own, since a certificate with the key of another would end the process. The rotator
    only checks that there is a certificate in /tmp. The webhook is never called. It listens on all interfaces: only its port can be set.
    """
    api.apply(yaml.safe_load(binaries.module_file(binaries.TRAINING_OPERATOR, binaries.TFJOB_CRD).read_text()))
    for obj in _WEBHOOK_OBJECTS:
        api.apply(obj)
    metrics, health, webhook = free_ports(3)
    own = kubeconfig.parent
    flags = [
        f"--kubeconfig={kubeconfig}",
        "--enable-scheme=tfjob",
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        f"--webhook-server-port={webhook}",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        *([f"--gang-scheduler-name={gang_scheduler_name}"] if gang_scheduler_name else []),
    ]
    processes.stop("training-operator")
    begun = processes.count_in_log("training-operator", _LAST_START_MESSAGE)
    processes.start("training-operator", [program, *flags], {"TMPDIR": str(own)})
    secret = "/api/v1/namespaces/kubeflow/secrets/training-operator-webhook-cert"
    wanted = {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    processes.wait_until("training-operator", lambda: wanted <= set((api.find(secret) or {}).get("data") or {}))
    for folder in (own, Path("/tmp")):
        (folder / _CERTIFICATES).mkdir(parents=True, exist_ok=True)
        api.write_secret(secret, folder / _CERTIFICATES)
    processes.wait_until("training-operator", lambda: api.answers(f"http://127.0.0.1:{health}/readyz"))
    # training-operator reports that it is ready before its controllers are. A job created in between would never be reported as created.
    processes.wait_until("training-operator", lambda: processes.count_in_log("training-operator", _LAST_START_MESSAGE) > begun)


_WEBHOOK_OBJECTS: Sequence[dict[str, Any]] = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}},
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "training-operator-webhook-cert", "namespace": "kubeflow"}},
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "validator.training-operator.kubeflow.org"},
        "webhooks": [],
    },
)


def _etcd_flags(client: str, peer: str, data: Path) -> list[str]:
    return [
        "--name=default",
        f"--data-dir={data}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--auto-compaction-retention=0",
        "--log-level=warn",
    ]


def _apiserver_flags(folder: Path, port: int, etcd: str) -> list[str]:
    return [
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--client-ca-file={folder / 'ca.crt'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'service-accounts.key'}",
        f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--event-ttl=24h",
    ]
