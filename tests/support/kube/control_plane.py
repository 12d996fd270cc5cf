"""A real Kubernetes API: etcd and kube-apiserver as processes, for as long as tests need it.

Where the programs come from: `tools/kube/binaries.sh`. Nobody runs pods here; with `controllers` the
controller manager and the scheduler run, too, and `nodes` plays the kubelets.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import secrets
import shutil
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trustme

from support.waiting import wait_until
from tidelog.cli.local.processes import free_ports
from tidelog_operator.kubernetes.api import KINDS
from tidelog_operator.model import ObjectKey

CRDS = Path(__file__).parents[3] / "crds"
SCRIPT = Path(__file__).parents[3] / "tools" / "kube" / "binaries.sh"
START_SECONDS_MAX = 60.0
ADMINISTRATOR = "administrator"


def assets() -> tuple[Path | None, str]:
    """The folder of the programs; None, and why not."""
    found = subprocess.run([SCRIPT, "where"], capture_output=True, text=True, check=False)
    return (Path(found.stdout.strip()), "") if found.returncode == 0 else (None, found.stderr.strip())


class ControlPlane:
    """A real API server with its store. A context manager. Its folder is gone afterwards."""

    def __init__(self, programs: Path, folder: Path, *, controllers: bool = False) -> None:
        self._programs = programs
        self.folder = folder
        self._controllers = controllers
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._token = secrets.token_hex(16)
        self._commands: dict[str, list[str]] = {}
        self.url = ""

    # --- life

    def __enter__(self) -> ControlPlane:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_certificates()
        groups = '"system:masters"'
        (self.folder / "tokens.csv").write_text(f"{self._token},{ADMINISTRATOR},1,{groups}\n")
        port, etcd, peer = free_ports(3)
        self.url = f"https://127.0.0.1:{port}"
        self.kubeconfig.write_text(json.dumps(self.kubeconfig_of(self._token)))
        self._commands["etcd"] = [
            str(self._programs / "etcd"), "--data-dir", str(self.folder / "etcd"), "--log-level", "warn",
            "--unsafe-no-fsync",
            "--listen-client-urls", f"http://127.0.0.1:{etcd}",
            "--advertise-client-urls", f"http://127.0.0.1:{etcd}",
            "--listen-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-cluster", f"default=http://127.0.0.1:{peer}",
        ]  # fmt: skip
        # Nobody mounts tokens into pods here, and without a controller manager no namespace has its default
        # service account: the admission that asks for it is off. Another one is on that some clusters have:
        # who makes an object that belongs to another one has to have a right for that.
        self._commands["kube-apiserver"] = [
            str(self._programs / "kube-apiserver"), "--etcd-servers", f"http://127.0.0.1:{etcd}",
            "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", str(port),
            "--tls-cert-file", str(self.folder / "server.crt"),
            "--tls-private-key-file", str(self.folder / "server.key"),
            "--token-auth-file", str(self.folder / "tokens.csv"), "--authorization-mode", "RBAC",
            "--service-account-issuer", self.url,
            "--service-account-key-file", str(self.folder / "accounts.key"),
            "--service-account-signing-key-file", str(self.folder / "accounts.key"),
            "--service-cluster-ip-range", "10.96.0.0/16", "--disable-admission-plugins", "ServiceAccount",
            "--enable-admission-plugins", "OwnerReferencesPermissionEnforcement",
            "--endpoint-reconciler-type", "none", "--allow-privileged=true",
            # So large that the API server gives none of the first 128 by itself: tests name some of them.
            "--service-node-port-range", "30000-34095",
        ]  # fmt: skip
        try:
            self._start("etcd")
            self.start_api()
            if self._controllers:
                self._start_controllers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self._processes)):
            self._stop(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_certificates(self) -> None:
        authority = trustme.CA()
        server = authority.issue_cert("localhost", "127.0.0.1")
        accounts = authority.issue_cert(common_name="accounts")
        authority.cert_pem.write_to_path(str(self.folder / "ca.crt"))
        server.cert_chain_pems[0].write_to_path(str(self.folder / "server.crt"))
        server.private_key_pem.write_to_path(str(self.folder / "server.key"))
        accounts.private_key_pem.write_to_path(str(self.folder / "accounts.key"))

    def start_api(self) -> None:
        self._start("kube-apiserver")
        wait_until(self._is_ready, "kube-apiserver is ready", START_SECONDS_MAX)

    def stop_api(self) -> None:
        """The API is not to be reached until `start_api`; what it knows stays."""
        self._stop("kube-apiserver")

    def _start_controllers(self) -> None:
        common = ["--kubeconfig", str(self.kubeconfig), "--leader-elect=false", "--secure-port", "0"]
        # Made-up nodes have no heartbeats, by which the node controllers would judge them.
        self._commands["kube-controller-manager"] = [
            str(self._programs / "kube-controller-manager"), *common,
            "--service-account-private-key-file", str(self.folder / "accounts.key"),
            "--root-ca-file", str(self.folder / "ca.crt"),
            "--controllers", "*,-node-lifecycle-controller,-taint-eviction-controller,-node-ipam-controller",
            "--kube-api-qps", "200", "--kube-api-burst", "400",
        ]  # fmt: skip
        self._commands["kube-scheduler"] = [str(self._programs / "kube-scheduler"), *common]
        self._start("kube-controller-manager")
        self._start("kube-scheduler")

    def _start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )

    def _stop(self, name: str) -> None:
        process = self._processes.pop(name)
        # Told to stop, an API server takes five seconds to see everybody off.
        process.kill()
        process.wait()

    def _is_ready(self) -> bool:
        for name, process in self._processes.items():
            assert process.poll() is None, f"{name} ended: {self._last_words(name)}"
        with contextlib.suppress(OSError, urllib.error.URLError):
            return self.get("/readyz") == b"ok"
        return False

    def _last_words(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")[-2000:]

    # --- asking it

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "administrator.kubeconfig"

    def kubeconfig_of(self, token: str) -> dict[str, Any]:
        authority = base64.b64encode((self.folder / "ca.crt").read_bytes()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "tests",
                    "cluster": {"server": self.url, "certificate-authority-data": authority},
                }
            ],
            "users": [{"name": "one", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "one"}}],
            "current-context": "tests",
        }

    def account(self, namespace: str, name: str) -> Path:
        """A kubeconfig for this service account, which is there; `--kubeconfig` has `kubectl` use it."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration", "1h").strip()
        path = self.folder / f"{namespace}.{name}.kubeconfig"
        path.write_text(json.dumps(self.kubeconfig_of(token)))
        return path

    @functools.cached_property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "ca.crt"))

    def get(self, path: str) -> bytes:
        request = urllib.request.Request(
            f"{self.url}{path}", headers={"Authorization": f"Bearer {self._token}"}
        )
        with urllib.request.urlopen(request, timeout=5, context=self.tls) as answer:
            body: bytes = answer.read()
            return body

    def patched_by(self, account: Path, path: str, patch: dict[str, Any]) -> str:
        """What is said to this account against a merge patch; empty: it is done."""
        token = json.loads(account.read_text())["users"][0]["user"]["token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
        body = json.dumps(patch).encode()
        request = urllib.request.Request(f"{self.url}{path}", body, headers, method="PATCH")
        try:
            urllib.request.urlopen(request, timeout=5, context=self.tls).close()
        except urllib.error.HTTPError as error:
            return error.read().decode()
        return ""

    def kubectl(self, *words: str, given: object = None, fails: bool = False) -> str:
        """What `kubectl` says, on stderr if it `fails`. `given`: a manifest, or several, for `-f -`."""
        done = self._kubectl(words, given)
        assert (done.returncode != 0) == fails, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    def refusal(self, *words: str, given: object = None) -> str:
        """What `kubectl` says against it; empty: it did it."""
        done = self._kubectl(words, given)
        return done.stderr if done.returncode else ""

    def words_on(self, *words: str, given: object = None) -> str:
        """What `kubectl` says besides what was asked for: against it, and warnings. Empty: nothing."""
        return self._kubectl(words, given).stderr

    def _kubectl(self, words: Sequence[str], given: object) -> subprocess.CompletedProcess[str]:
        text = None if given is None else _manifests(given)
        return subprocess.run(
            [self._programs / "kubectl", "--kubeconfig", self.kubeconfig, *words],
            input=text, capture_output=True, text=True, check=False,
            env={**os.environ, "HOME": str(self.folder)},
        )  # fmt: skip

    def apply(self, *manifests: dict[str, Any] | Path) -> None:
        for manifest in manifests:
            if isinstance(manifest, Path):
                self.kubectl("apply", "--server-side", "-f", str(manifest))
            else:
                self.kubectl("apply", "--server-side", "-f", "-", given=manifest)

    def apply_all(self, *lists: Sequence[dict[str, Any]]) -> None:
        """In their order, which takes one `kubectl`."""
        self.kubectl("apply", "--server-side", "-f", "-", given=[one for each in lists for one in each])

    def add_crds(self) -> None:
        """The project's."""
        self.apply(*sorted(CRDS.glob("*.yaml")))
        self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")

        def are_found() -> bool:
            found = self.kubectl("api-resources", "--api-group=tidelog.io", "--output=name")
            return set(found.split()) == {"clusters.tidelog.io", "streams.tidelog.io"}

        # What is established is discovered a moment later.
        wait_until(are_found, "kubectl knows Clusters and Streams")

    def object(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """As the API server has it; asked directly, because `kubectl` takes longer to start than to ask."""
        found: dict[str, Any] = json.loads(self.get(f"{_path(kind, namespace)}/{name}"))
        return found

    def objects(self, kind: str, label: str, namespace: str = "default") -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"labelSelector": label})
        found: list[dict[str, Any]] = json.loads(self.get(f"{_path(kind, namespace)}?{query}"))["items"]
        return found


def _path(kind: str, namespace: str) -> str:
    if kind == "CustomResourceDefinition":
        return "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    return KINDS[kind].path(ObjectKey(namespace, ""))


def _manifests(given: object) -> str:
    items = given if isinstance(given, list) else [given]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
