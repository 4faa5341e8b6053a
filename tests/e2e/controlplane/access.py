"""An administrator's access to an API server: read from any kubeconfig, written as a kubeconfig, and used by clients."""

import os
import shutil
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config


class UnusableError(RuntimeError):
    """A cluster, or the access to it, can't be used; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Access:
    """One API server, with its administrator's token or certificate and key."""

    url: str
    ca: Path | None = None
    token: str = ""
    certificate: tuple[Path, Path] | None = None
    is_verified: bool = True

    def tls(self, *, as_administrator: bool = True) -> ssl.SSLContext | None:
        """Return the TLS context of a connection; None for plain HTTP.

        A client certificate takes precedence over a token, so it is loaded only with ``as_administrator``.
        """
        if not self.url.startswith("https:"):
            return None
        context = ssl.create_default_context(cafile=str(self.ca) if self.ca else None)
        if not self.is_verified:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if as_administrator and self.certificate:
            context.load_cert_chain(*self.certificate)
        return context

    def kubeconfig(self, token: str = "") -> dict[str, Any]:
        """Return a kubeconfig of the user with ``token``, or of the administrator if it is empty."""
        document = kubeconfig(self.url, self.ca, token or self.token)
        if not self.is_verified:
            document["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
        if self.certificate and not token:
            certificate, key = map(str, self.certificate)
            document["users"][0]["user"] |= {"client-certificate": certificate, "client-key": key}
        return document


def kubeconfig(server: str, ca: Path | None, token: str) -> dict[str, Any]:
    """Return a kubeconfig for one user of one cluster."""
    cluster = {"server": server} | ({"certificate-authority": str(ca)} if ca else {})
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "controlplane",
        "clusters": [{"name": "controlplane", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": token} if token else {}}],
        "contexts": [{"name": "controlplane", "context": {"cluster": "controlplane", "user": "user", "namespace": "default"}}],
    }


def read_kubeconfig(folder: Path) -> Access:
    """Return the access of the current context in ``KUBECONFIG``, or in ``~/.kube/config``; certificates are copied into ``folder``.

    Credentials are read only once: a token that a plug-in issues must last as long as the tests. Raises ``UnusableError``.
    """
    path = os.environ.get("KUBECONFIG") or "~/.kube/config"
    found = client.Configuration()
    try:
        config.load_kube_config(config_file=path, client_configuration=found, persist_config=False)
    except Exception as error:  # a malformed file or a credential plug-in may raise anything
        raise UnusableError(f"kubeconfig {path} can't be used ({error}); set KUBECONFIG") from error
    header = (found.auth_settings().get("BearerToken") or {}).get("value") or ""
    certificate = None
    if found.cert_file and found.key_file:
        certificate = _copied(found.cert_file, folder / "admin.crt"), _copied(found.key_file, folder / "admin.key")
    ca = _copied(found.ssl_ca_cert, folder / "ca.crt") if found.ssl_ca_cert else None
    return Access(found.host, ca, header.removeprefix("Bearer "), certificate, bool(found.verify_ssl))


def _copied(source: str, target: Path) -> Path:
    """Copy a file and return the copy: the loader removes the files that it writes for inline certificates."""
    shutil.copyfile(source, target)
    target.chmod(0o600)
    return target
