"""An authority and the certificates that it signs, made with openssl."""

import pathlib
import subprocess

# A role of IEEE 11073-20701, which certificates of SDC participants carry besides the usages of TLS.
ROLE = "1.2.840.10004.20701.1.1"
VALID = ("20200101000000Z", "99991231235959Z")
EXPIRED = ("20200101000000Z", "20200102000000Z")
BOTH_ENDS = "serverAuth,clientAuth"

CONFIGURATION = """
[ca]
default_ca = authority
[authority]
new_certs_dir = {folder}
database = {folder}/index
serial = {folder}/serial
certificate = {folder}/cacert.pem
private_key = {folder}/ca.key
default_md = sha256
policy = names
unique_subject = no
[names]
commonName = supplied
"""


class Authority:
    def __init__(self, folder: pathlib.Path, name: str):
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "index").touch()
        (folder / "serial").write_text("1000\n")
        (folder / "ca.cnf").write_text(CONFIGURATION.format(folder=folder))
        self.file = folder / "cacert.pem"
        self._key("ca.key")
        self._openssl("req", "-x509", "-key", folder / "ca.key", "-out", self.file, "-subj", f"/CN={name}",
                      "-days", "3650")

    def sign(self, name: str, names: str = "", usages: str = f"{BOTH_ENDS},{ROLE}",
             dates: tuple[str, str] = VALID) -> tuple[pathlib.Path, pathlib.Path]:
        """A certificate with these alternative names, and its key."""
        certificate, key, request = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        self._key(key.name)
        self._openssl("req", "-new", "-key", key, "-out", request, "-subj", f"/CN={name}")
        extensions = self.folder / f"{name}.ext"
        lines = ["basicConstraints = critical, CA:FALSE", "keyUsage = critical, digitalSignature",
                 f"extendedKeyUsage = {usages}"]
        lines += [f"subjectAltName = {names}"] if names else []
        extensions.write_text("\n".join(lines))
        self._openssl("ca", "-batch", "-notext", "-config", self.folder / "ca.cnf", "-in", request, "-out", certificate,
                      "-startdate", dates[0], "-enddate", dates[1], "-extfile", extensions)
        return certificate, key

    def _key(self, name: str) -> None:
        key = self.folder / name
        self._openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
        key.chmod(0o600)

    def _openssl(self, *words) -> None:
        done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"openssl {words[0]}: {done.stderr}")


def fingerprint(certificate: pathlib.Path) -> str:
    shown = subprocess.run(["openssl", "x509", "-in", certificate, "-noout", "-fingerprint", "-sha256"],
                           capture_output=True, text=True, check=True)
    return shown.stdout.strip().split("=")[1].replace(":", "").lower()
