"""Makes and checks the webhooks' serving certificate and the authority that signs it.

The key of an authority is dropped after it has signed one certificate, so that it can't be stolen. A renewal makes a new certificate and a
new authority. Clients trust the new authority and the one before, since during a renewal some replicas still serve the old certificate.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SKEW = timedelta(hours=1)
"""Time by which the clock of a client may be behind ours."""

_RENEWED_AFTER = 2 / 3
"""Share of its life after which a certificate is renewed. If the renewal fails, the certificate stays valid for the last third."""

_MOST_CHARACTERS = 65_536
_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\n")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate pair: a serving certificate and its key, and the authorities to trust, all PEM.

    The authority that signed the certificate comes first.
    """

    authorities: str
    certificate: str
    key: str
    begins: datetime
    ends: datetime

    def __repr__(self) -> str:
        return f"Pair(ends={self.ends:%Y-%m-%d})"  # never the key

    def is_due(self, now: datetime) -> bool:
        """Return whether the certificate is due for renewal."""
        return now >= self.begins + _RENEWED_AFTER * (self.ends - self.begins)

    def is_good(self, now: datetime) -> bool:
        """Return whether the certificate is valid at ``now``."""
        return self.begins <= now < self.ends


def make_pair(hosts: Sequence[str], now: datetime, life: timedelta, before: Pair | None = None) -> Pair:
    """Return a new pair for a server with the names or addresses ``hosts``.

    Its authorities include the authority of the pair ``before``.
    """
    begins, ends = now - _SKEW, now + life
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer, public = _name(f"allaboard-admission-ca {now:%Y-%m-%d}"), authority_key.public_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    authority = (
        _builder(issuer, issuer, public, begins, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(_name("allaboard-admission"), issuer, key.public_key(), begins, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    trusted = "".join([_pem(authority), *_BLOCK.findall(before.authorities if before else "")[:1]])
    return Pair(trusted, _pem(certificate), secret.decode(), certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def read_pair(authorities: str, certificate: str, key: str, hosts: Sequence[str]) -> Pair:
    """Return a stored pair. Raises ``ValueError`` if it isn't valid PEM of a pair, or isn't for a server with the names ``hosts``."""
    if max(map(len, (authorities, certificate, key))) > _MOST_CHARACTERS:
        raise ValueError("it is too long for a certificate")
    try:
        found, secret = x509.load_pem_x509_certificate(certificate.encode()), serialization.load_pem_private_key(key.encode(), None)
        found.verify_directly_issued_by(x509.load_pem_x509_certificates(authorities.encode())[0])
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        is_the_keys = found.public_key() == secret.public_key()
    except Exception as error:  # a dozen kinds of errors, all with the same meaning
        raise ValueError("it isn't a certificate with its key and the authority that signed it") from error
    if not is_the_keys:
        raise ValueError("the key isn't the key of the certificate")
    missing = [host for host in hosts if _alternative(host) not in names]
    if missing:
        raise ValueError(f"the certificate isn't for {', '.join(missing)}")
    return Pair(authorities, certificate, key, found.not_valid_before_utc, found.not_valid_after_utc)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
