"""Certificates, keys and tokens of a control plane's servers and clients, created for each control plane."""

import secrets
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

SERVER_NAMES = ("localhost", "kubernetes.default.svc", "127.0.0.1", "10.96.0.1")


def write_certificates(folder: Path) -> None:
    """Write ``ca.crt`` and its key, the API server's ``server.crt`` and ``server.key``, and the key that signs service account tokens."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.crt")
    authority.private_key_pem.write_to_path(folder / "ca.key")
    server = authority.issue_cert(*SERVER_NAMES)
    server.private_key_pem.write_to_path(folder / "server.key")
    for number, pem in enumerate(server.cert_chain_pems):
        pem.write_to_path(folder / "server.crt", append=number > 0)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem_bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    (folder / "service-accounts.key").write_bytes(pem_bytes)


def write_user_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a certificate and a key that identify a user to the API server of ``folder``, and return their paths."""
    authority = trustme.CA.from_pem((folder / "ca.crt").read_bytes(), (folder / "ca.key").read_bytes())
    user = authority.issue_cert(name, common_name=name)  # Go refuses a certificate with an empty list of names
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    user.cert_chain_pems[0].write_to_path(certificate)
    user.private_key_pem.write_to_path(key)
    return certificate, key


def write_admin_token(folder: Path) -> str:
    """Write ``tokens.csv`` with one user that may do anything, and return the user's token."""
    token = secrets.token_urlsafe(24)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    return token
