"""Certificates and keys for a federation on one's own machines, made on the spot.

A certificate authority that exists for a moment signs one server certificate; its own key is never
written. Every SuperNode gets a key pair: the SuperLink is told the public half.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Certificates", "make_certificates", "make_node_key"]


@dataclasses.dataclass(frozen=True)
class Certificates:
    """Where the files are.

    Attributes
    ----------
    authority : Path
        Certificate of the authority: what clients check the server's with.
    server, key : Path
        Certificate of the server and its private key.
    """

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
        Made if need be, readable for its owner alone.
    hosts : sequence of str
        Names and addresses under which the server is reached.
    days : int, default 30
        How long they last.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority_key = ec.generate_private_key(ec.SECP384R1())
    authority_name = _name("freshband authority")
    authority = (
        _begin(authority_name, authority_name, authority_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(_identifier(authority_key), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    key = ec.generate_private_key(ec.SECP384R1())
    server = (
        _begin(_name(hosts[0]), authority_name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA384())
    )
    made = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    pem = serialization.Encoding.PEM
    made.authority.write_bytes(authority.public_bytes(pem))
    made.server.write_bytes(server.public_bytes(pem))
    _write_secret(
        made.key,
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
    return made


def make_node_key(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a SuperNode's key pair; return the paths of the private and the public half."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP384R1())
    private, public = folder / name, folder / f"{name}.pub"
    _write_secret(
        private,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        ),
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
    )
    return private, public


def _write_secret(path: Path, data: bytes) -> None:
    """Write a file nobody else may read, from its first moment on."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
    )


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


def _identifier(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
