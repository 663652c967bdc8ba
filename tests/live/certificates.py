"""An authority of our own, with a certificate for 127.0.0.1 and one for a client, made anew for each test run."""

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

    def server_context(self, *, asks_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate("server"), self.key("server"))
        if asks_client:
            context.load_verify_locations(self.authority)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def made(folder: Path) -> Certificates:
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    _openssl(folder, "req", "-x509", *new_key, "-subj", "/CN=own authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name, extension in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")):
        issued = ("-subj", f"/CN={name}", "-addext", extension, "-CA", "ca.pem", "-CAkey", "ca.key")
        _openssl(folder, "req", "-x509", *new_key, *issued, "-keyout", f"{name}.key", "-out", f"{name}.pem")
    return Certificates(folder)


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
