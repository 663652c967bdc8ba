"""An authority of our own, with certificates for 127.0.0.1 (one has
expired), for another name and for a client, made for each test run.
"""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def server_context(self, *, asks_client: bool = False, name: str = "server") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate(name), self.key(name))
        if asks_client:
            context.load_verify_locations(self.authority)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def made(folder: Path) -> Certificates:
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    _openssl(
        folder,
        "req",
        "-x509",
        *new_key,
        "-subj",
        "/CN=own authority",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
    )
    extensions = {
        "server": "subjectAltName=IP:127.0.0.1",
        "client": "extendedKeyUsage=clientAuth",
        "elsewhere": "subjectAltName=DNS:else.where",
    }
    for name, extension in extensions.items():
        issued = ("-subj", f"/CN={name}", "-addext", extension, "-CA", "ca.pem", "-CAkey", "ca.key")
        _openssl(
            folder,
            "req",
            "-x509",
            *new_key,
            *issued,
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
        )
    asked = (
        "-subj",
        "/CN=expired",
        "-addext",
        extensions["server"],
        "-keyout",
        "expired.key",
        "-out",
        "expired.csr",
    )
    _openssl(folder, "req", "-new", *new_key[:-2], *asked)
    signed = (
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-copy_extensions",
        "copy",
        "-days",
        "-1",
    )
    _openssl(folder, "x509", "-req", "-in", "expired.csr", *signed, "-out", "expired.pem")
    return Certificates(folder)


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
