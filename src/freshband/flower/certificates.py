"""Certificates and keys for a federation on the user's own machines.

A certificate authority signs one server certificate; its own key is never written. Every SuperNode
gets a key pair, of which the SuperLink learns the public half.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Certificates", "make_certificates", "make_node_key"]


@dataclasses.dataclass(frozen=True)
class Certificates:
    """Paths of the certificate of the authority, that of the server, and the server's key."""

    authority: Path
    server: Path
    key: Path


def make_certificates(
    folder: Path, hosts: Sequence[str] = ("localhost", "127.0.0.1"), days: int = 30
) -> Certificates:
    """Write a certificate authority and a server certificate for these hosts.

    Parameters
    ----------
    folder : Path
        Folder for the files; if it does not exist it is made, readable by its owner only.
    hosts : sequence of str
        Names and addresses under which clients reach the server.
    days : int, default 30
        Number of days for which the certificates are valid.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    authority, key = _new_key(), _new_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    certificate = _certificate(
        "freshband authority",
        authority,
        authority,
        days,
        critical=[x509.BasicConstraints(ca=True, path_length=0), _usage(signs=True)],
        others=[identifier],
    )
    made.authority.write_bytes(certificate)
    certificate = _certificate(
        hosts[0],
        key,
        authority,
        days,
        critical=[x509.BasicConstraints(ca=False, path_length=None), _usage(signs=False)],
        others=[
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
            x509.SubjectAlternativeName([_host(host) for host in hosts]),
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
        ],
    )
    made.server.write_bytes(certificate)
    _write_key(made.key, key, serialization.PrivateFormat.PKCS8)
    return made


def make_node_key(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a SuperNode's key pair; return the paths of the private and the public half."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    private, public = folder / name, folder / f"{name}.pub"
    key = _new_key()
    _write_key(private, key, serialization.PrivateFormat.OpenSSH)
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
    )
    return private, public


def make_secret(path: Path) -> Path:
    """Write 32 random bytes, which SuperNodes share with the process that runs their ClientApps."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write_private(path, secrets.token_bytes(32))
    return path


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _write_key(
    path: Path, key: ec.EllipticCurvePrivateKey, format: serialization.PrivateFormat
) -> None:
    _write_private(
        path, key.private_bytes(serialization.Encoding.PEM, format, serialization.NoEncryption())
    )


def _write_private(path: Path, data: bytes) -> None:
    """Write a file that nobody but its owner may read at any time."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    authority: ec.EllipticCurvePrivateKey,
    days: int,
    *,
    critical: Sequence[x509.ExtensionType],
    others: Sequence[x509.ExtensionType],
) -> bytes:
    """Return the certificate of a key, signed by the authority, in PEM format."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name("freshband authority"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
    )
    for extension in (*critical, *others):
        builder = builder.add_extension(extension, critical=extension in critical)
    return builder.sign(authority, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
