"""Tests the webhooks' certificate and its authority."""

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from allaboard.admission.certificates import Pair, make_pair, read_pair

HOSTS = ("allaboard-admission.allaboard-system.svc", "127.0.0.1")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIFE = timedelta(days=90)


def handshake_error(served: Pair, trusted: Pair, host: str) -> str:
    """Return the error of a TLS handshake in memory; empty if it succeeds."""
    server_context, client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cadata=trusted.authorities)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.write_text(served.certificate + served.key)
        server_context.load_cert_chain(path)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(down, up, server_hostname=host)
    server = server_context.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return "" if client.version() else "no handshake"


@pytest.mark.parametrize("host", HOSTS)
def test_client_that_trusts_the_ca_accepts_the_certificate_only_for_its_names(host: str) -> None:
    pair = make_pair(HOSTS, datetime.now(UTC), LIFE)
    assert handshake_error(pair, pair, host) == ""
    assert "doesn't match" in handshake_error(pair, pair, "somewhere.else") or "mismatch" in handshake_error(pair, pair, "somewhere.else")


def test_renewed_ca_bundle_trusts_the_new_and_the_previous_certificate_and_none_older() -> None:
    oldest = make_pair(HOSTS, datetime.now(UTC), LIFE)
    old = make_pair(HOSTS, datetime.now(UTC), LIFE, oldest)
    new = make_pair(HOSTS, datetime.now(UTC), LIFE, old)
    assert handshake_error(new, new, HOSTS[0]) == ""
    assert handshake_error(old, new, HOSTS[0]) == ""
    assert handshake_error(oldest, new, HOSTS[0]) != ""
    assert handshake_error(new, old, HOSTS[0]) != ""


def test_stored_certificate_and_key_are_read_back() -> None:
    pair = make_pair(HOSTS, NOW, LIFE)
    assert read_pair(pair.authorities, pair.certificate, pair.key, HOSTS) == pair
    assert pair.key not in repr(pair)


def test_certificate_is_due_for_renewal_after_two_thirds_of_its_life_and_valid_until_its_end() -> None:
    pair = make_pair(HOSTS, NOW, LIFE)
    assert [pair.is_due(NOW + timedelta(days=days)) for days in (0, 59, 61)] == [False, False, True]
    assert [pair.is_good(NOW + timedelta(days=days)) for days in (-1, 0, 89, 91)] == [False, True, True, False]


def test_certificate_that_is_malformed_or_for_other_names_is_refused() -> None:
    pair, other = make_pair(HOSTS, NOW, LIFE), make_pair(HOSTS, NOW, LIFE)
    for authorities, certificate, key in [
        ("", pair.certificate, pair.key),
        (pair.authorities, "", pair.key),
        (pair.authorities, pair.certificate, ""),
        (other.authorities, pair.certificate, pair.key),
        (pair.authorities, pair.certificate, other.key),
        (pair.authorities, pair.certificate, "x" * 100_000),
    ]:
        with pytest.raises(ValueError, match=r"it isn't a certificate|the key isn't|too long"):
            read_pair(authorities, certificate, key, HOSTS)
    with pytest.raises(ValueError, match=r"isn't for elsewhere\.svc"):
        read_pair(pair.authorities, pair.certificate, pair.key, ("elsewhere.svc",))
