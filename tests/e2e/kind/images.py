"""Builds images of a kind cluster that come from no registry: the node's, by ``kind build node-image``, and Python's."""

import configparser
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.cache import key_of
from tests.e2e.controlplane.binaries import KUBERNETES, MissingToolError, module_folder

from . import archives, debian
from .archives import Image
from .daemon import Daemon
from .programs import CNI_PLUGINS, KIND, NODE
from .steps import Steps

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]
_SUITE, _PYTHON_SUITE = "bookworm", "trixie"
"""Debian releases: the systemd of the first supports both versions of cgroups, and the second has the Python of the Dockerfile."""
_PACKAGES = (
    *("systemd", "systemd-sysv", "conntrack", "iptables", "nftables", "iproute2", "ethtool", "util-linux", "mount", "kmod", "libseccomp2"),
    *("pigz", "e2fsprogs", "bash", "ca-certificates", "jq", "procps"),
)
_PYTHON_PACKAGES = ("python3", "python3-venv", "python3-pip", "python-is-python3", "ca-certificates")
_PIP = ("pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
_LOCKS = (_ROOT / "requirements.txt", _ROOT / "requirements-build.txt")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def node_tag() -> str:
    """Return the tag of the node image, which depends on everything that the image is built from."""
    sources = [(_HERE / name).read_bytes() for name in ("images.py", "archives.py", "debian.py", "node.Dockerfile")]
    return f"allaboard-kind-node:{key_of(*sources, *(program.key for program in NODE))}"


def was_built(cache: Path) -> bool:
    """Return whether any node image was built in ``cache``; then another one takes only minutes."""
    return any((cache / "daemon").glob("*.built"))


def ensure_node(steps: Steps, daemon: Daemon, programs: Mapping[str, Path]) -> str:
    """Return the tag of the node image, after building it if it is missing."""
    tag = node_tag()
    mark = steps.cache / "daemon" / f"{tag.partition(':')[2]}.built"
    if daemon.has_image(tag):
        mark.touch()
        return tag
    refuse_linked(programs[program.name] for program in NODE)
    kind = module_folder(KIND)
    debian_archive = debian.file_system(steps, "node", _SUITE, _PACKAGES)
    with tempfile.TemporaryDirectory(dir=steps.cache) as folder:
        context = Path(folder, "context")
        shutil.copytree(kind / "images" / "base" / "files", context / "files", copy_function=shutil.copyfile)
        for place, names in _places().items():
            (context / place).mkdir()
            for name in names:
                shutil.copy(programs[name], context / place / name)
        daemon.docker("docker import of the node's file system", "import", "-", "allaboard-kind-debian:local", stdin=debian_archive)
        named = ("--tag", "allaboard-kind-base:local", "--file", _HERE / "node.Dockerfile")
        daemon.docker("docker build of kind's base image", "build", *named, context)
        release = _release(Path(folder), kind, debian_archive, programs)
        command = ["build", "node-image", "--type", "file", "--base-image", "allaboard-kind-base:local", "--image", tag]
        steps.run("kind build node-image", [programs["kind"], *command, release], {**os.environ, **daemon.environment})
    mark.touch()
    return tag


def refuse_linked(programs: Iterable[Path]) -> None:
    """Raise ``MissingToolError`` if a program is linked with libraries of this machine: the node has another Debian."""
    for program in programs:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        if "=>" in said:
            raise MissingToolError(f"{program} can't be part of a node, since it is linked with libraries of this machine:\n{said}")


def ensure_python(steps: Steps, daemon: Daemon) -> str:
    """Return the tag of the image that replaces the Dockerfile's base: Debian's Python, with the wheels, since there is no network."""
    chroot = f'chroot "$1" env -u PIP_FIND_LINKS python3 -m {" ".join(_PIP)} --dest /wheels'
    hooks = [
        f"upload {_CERTIFICATES} {_CERTIFICATES}",
        *(f"upload {lock} /{lock.name}" for lock in _LOCKS),
        f"{chroot} --require-hashes {' '.join(f'--requirement /{lock.name}' for lock in _LOCKS)}",
        *(f'rm "$1"/{lock.name}' for lock in _LOCKS),
        "printf '[global]\\nno-index = true\\nfind-links = /wheels\\nbreak-system-packages = true\\n' >\"$1\"/etc/pip.conf",
    ]
    options = [f"--customize-hook={hook}" for hook in hooks]
    made_of = b"".join(path.read_bytes() for path in (*_LOCKS, _HERE / "images.py"))
    archive = debian.file_system(steps, "python", _PYTHON_SUITE, _PYTHON_PACKAGES, options, made_of)
    tag = f"allaboard-kind-python:{archive.stem.rpartition('-')[2]}"
    if not daemon.has_image(tag):
        changes = ("--change", 'CMD ["python3"]', "--change", "ENV LANG=C.UTF-8")
        daemon.docker("docker import of Debian's Python", "import", *changes, "-", tag, stdin=archive)
    return tag


def ensure_wheels(steps: Steps, python: Path) -> Path:
    """Return the folder of wheels that the tests install with ``python``, since they have no network."""
    setup = configparser.ConfigParser()
    setup.read(_ROOT / "setup.cfg")
    pins, sandbox = _ROOT / "constraints.txt", setup["options.extras_require"]["sandbox"].split()
    folder = steps.cache / f"wheels-{key_of(*(path.read_bytes() for path in (*_LOCKS, pins)), *sandbox, str(python.resolve()))}"
    if not folder.exists():
        partly = folder.with_suffix(".partly")
        shutil.rmtree(partly, ignore_errors=True)
        locked = [word for lock in _LOCKS for word in ("--requirement", str(lock))]
        for what in ["--require-hashes", *locked], ["--constraint", str(pins), *sandbox]:
            steps.run("wheels for the tests", [python, "-m", *_PIP, "--dest", partly, *what])
        partly.rename(folder)
    return folder


def _places() -> dict[str, list[str]]:
    """Return the names of the programs that kind's base image contains, by the folder of its build context that they are copied from."""
    return {
        "bin": ["containerd", "ctr", "containerd-shim-runc-v2"],
        "sbin": ["runc"],
        "cni": [program.name for program in CNI_PLUGINS],
    }


def _release(folder: Path, kind: Path, debian_archive: Path, programs: Mapping[str, Path]) -> Path:
    """Return the archive that `kind build node-image --type file` takes as a release of Kubernetes.

    kind loads the archives of the control plane's images; they also contain the images that kind would pull otherwise.
    """
    server = folder / "kubernetes" / "server" / "bin"
    server.mkdir(parents=True)
    (folder / "kubernetes" / "version").write_text(f"v{KUBERNETES}\n")
    for name in ("kubeadm", "kubelet", "kubectl"):
        shutil.copy(programs[name], server / name)
    proxy = folder / "proxy"
    proxy.mkdir()
    subprocess.run(["tar", "-C", proxy, "-xf", debian_archive, "--exclude=./dev/*"], check=True)
    for name, images in _control_plane(kind, proxy, programs).items():
        archives.write(server / f"{name}.tar", images)
    release = folder / "kubernetes.tar.gz"
    with tarfile.open(release, "w:gz", compresslevel=1) as tar:
        tar.add(folder / "kubernetes", "kubernetes")
    return release


def _control_plane(kind: Path, root: Path, programs: Mapping[str, Path]) -> dict[str, list[Image]]:
    """Return the images of a control plane by the name of their archive."""
    tags = _tags(kind, programs)

    def single(name: str, program: str = "", entrypoint: bool = True) -> Image:
        path = f"/usr/local/bin/{name}"
        return Image(tags[name], {path: programs[program or name]}, [path] if entrypoint else ())

    proxy = Image(
        tags["kube-proxy"],
        {"/usr/local/bin/kube-proxy": programs["kube-proxy"], **_with_libraries(root, _netfilter(root))},
        links={f"/usr/sbin/{six}tables{suffix}": "xtables-nft-multi" for six in ("ip", "ip6") for suffix in ("", "-save", "-restore")},
    )
    return {
        # Images without an entry point are started by the commands in their manifests.
        "kube-apiserver": [single("kube-apiserver", entrypoint=False), single("etcd", entrypoint=False)],
        "kube-controller-manager": [single("kube-controller-manager", entrypoint=False), single("coredns")],
        "kube-scheduler": [single("kube-scheduler", entrypoint=False), single("pause"), single("kindnetd")],
        # pause takes the place of the provisioner of volumes, since no test has volumes.
        "kube-proxy": [proxy, single("local-path-provisioner", "pause"), single("local-path-helper", "pause")],
    }


def _tags(kind: Path, programs: Mapping[str, Path]) -> dict[str, str]:
    """Return the tags of the images that kubeadm and kind need, by short name, as kubeadm and the source of kind state them."""
    command = [str(programs["kubeadm"]), "config", "images", "list", "--kubernetes-version", f"v{KUBERNETES}"]
    wanted = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    said = "".join((kind / "pkg" / "build" / "nodeimage" / name).read_text() for name in ("const_cni.go", "const_storage.go"))
    wanted += re.findall(r'Image = "(\S+)"', said)
    tags = {re.sub(r"^.*/|:.*$", "", tag): tag for tag in wanted}
    containerd = (kind / "images" / "base" / "files" / "etc" / "containerd" / "config.toml").read_text()
    (tags["pause"],) = re.findall(r'sandbox_image = "(\S+)"', containerd)
    return tags


def _netfilter(root: Path) -> list[str]:
    modules = (f"/{path.relative_to(root)}" for path in (root / "usr" / "lib").glob("*/xtables/*.so"))
    return ["/usr/sbin/xtables-nft-multi", "/usr/sbin/nft", "/usr/sbin/conntrack", *modules]


def _with_libraries(root: Path, paths: Iterable[str]) -> dict[str, Path]:
    """Return the files at ``paths`` below ``root`` and the libraries that they load, by path; links are followed below ``root``."""
    wanted = list(paths)
    said = subprocess.run(["chroot", root, "ldd", *wanted], capture_output=True, text=True, check=False).stdout
    libraries = re.findall(r"(/\S+\.so\S*) \(0x", said)
    assert any("libc.so" in library for library in libraries), said
    wanted += libraries
    return {path: _real(root, path) for path in wanted}


def _real(root: Path, path: str) -> Path:
    done = subprocess.run(["chroot", root, "readlink", "--canonicalize-existing", path], capture_output=True, text=True, check=True)
    return root / done.stdout.strip().lstrip("/")
