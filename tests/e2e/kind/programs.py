"""Programs of a kind node, which are built with Go from the module proxy, in the versions of kind's release."""

from dataclasses import replace
from pathlib import Path

from tests.cache import key_of
from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.binaries import Program

_STANDINS = Path(__file__).parent / "standins"
_CONTAINERD, _RUNC, _CNI_PLUGINS = "2.3.4", "1.4.3", "1.9.1"
_SMALL = ("-ldflags", "-s -w")


def _containerd(name: str) -> Program:
    module = "github.com/containerd/containerd/v2"
    stamp = f"-s -w -X {module}/version.Version=v{_CONTAINERD}"
    flags = ("-tags", "no_aufs no_zfs no_btrfs no_devmapper", "-ldflags", stamp)
    return Program(name, _CONTAINERD, f"{module}/cmd/{name}", flags=flags, exact=True)


def _cni(folder: str, name: str) -> Program:
    return Program(name, _CNI_PLUGINS, f"github.com/containernetworking/plugins/plugins/{folder}/{name}", flags=_SMALL, exact=True)


def _standin(name: str) -> Program:
    version = key_of(*(path.read_bytes() for path in sorted((_STANDINS / name).iterdir())))
    return Program(name, version, f"./{name}", "../kind/standins", _SMALL, exact=True)


KIND = Program("kind", "0.33.0", "sigs.k8s.io/kind", flags=_SMALL, exact=True)
RUNC = Program(
    "runc",
    _RUNC,
    "github.com/opencontainers/runc",
    # As in runc's own `make static`: the node has another C library than this machine.
    flags=("-tags", "seccomp netgo osusergo", "-ldflags", f"-s -w -X main.version={_RUNC} -extldflags -static"),
    with_cgo=True,
    exact=True,
)
RUNTIME = tuple(map(_containerd, ("containerd", "ctr", "containerd-shim-runc-v2")))
CNI_PLUGINS = (_cni("ipam", "host-local"), _cni("main", "loopback"), _cni("main", "ptp"), _cni("meta", "portmap"))
COREDNS, KINDNETD, PAUSE, RENDEZVOUS = map(_standin, ("coredns", "kindnetd", "pause", "rendezvous"))
KUBERNETES = tuple(
    replace(program, exact=True)
    for program in (
        binaries.APISERVER,
        binaries.CONTROLLER_MANAGER,
        binaries.SCHEDULER,
        binaries.KUBECTL,
        binaries.KUBEADM,
        binaries.KUBELET,
        binaries.KUBE_PROXY,
    )
)
NODE = (
    KIND,
    *KUBERNETES,
    replace(binaries.ETCD, exact=True),
    *RUNTIME,
    RUNC,
    *CNI_PLUGINS,
    COREDNS,
    KINDNETD,
    PAUSE,
)
PROGRAMS = (*NODE, RENDEZVOUS)
