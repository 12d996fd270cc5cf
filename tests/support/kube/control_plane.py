"""A real Kubernetes API for tests: etcd and kube-apiserver as processes.

`tools/kube/binaries.sh` says where the programs come from. Nothing runs pods here. With `controllers` the
controller manager and the scheduler run too, and `nodes` simulates the kubelets.
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
UNSCHEDULABLE_SECONDS_MAX = 5
ADMINISTRATOR = "administrator"


def assets() -> tuple[Path | None, str]:
    """Returns the folder of the programs; None, and why there is none."""
    found = subprocess.run([SCRIPT, "where"], capture_output=True, text=True, check=False)
    return (Path(found.stdout.strip()), "") if found.returncode == 0 else (None, found.stderr.strip())


class ControlPlane:
    """A control plane; a context manager that removes its folder at the end."""

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
        # No tokens are mounted into pods here, and without a controller manager no namespace has its default
        # service account, so the admission plug-in that requires it is off. Another plug-in, which some
        # clusters use, is on: a client that creates an object with an owner must have a right for that.
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
            # So large that the API server assigns none of the first 128 itself: tests use some of them.
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
        """Stops the API server until `start_api`; its data stays."""
        self._stop("kube-apiserver")

    def _start_controllers(self) -> None:
        common = ["--kubeconfig", str(self.kubeconfig), "--leader-elect=false", "--secure-port", "0"]
        # Simulated nodes have no heartbeats, by which the node controllers would judge them.
        self._commands["kube-controller-manager"] = [
            str(self._programs / "kube-controller-manager"), *common,
            "--service-account-private-key-file", str(self.folder / "accounts.key"),
            "--root-ca-file", str(self.folder / "ca.crt"),
            "--controllers", "*,-node-lifecycle-controller,-taint-eviction-controller,-node-ipam-controller",
            "--kube-api-qps", "200", "--kube-api-burst", "400",
        ]  # fmt: skip
        # A pod whose claim is bound while the scheduler looks at it may wait until this has passed, which is
        # five minutes by default.
        retried = f"--pod-max-in-unschedulable-pods-duration={UNSCHEDULABLE_SECONDS_MAX}s"
        self._commands["kube-scheduler"] = [str(self._programs / "kube-scheduler"), *common, retried]
        self._start("kube-controller-manager")
        self._start("kube-scheduler")

    def _start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )

    def _stop(self, name: str) -> None:
        process = self._processes.pop(name)
        # After SIGTERM an API server takes five seconds to close all connections.
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

    # --- requests

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the administrator."""
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
        """Writes a kubeconfig for this existing service account; `--kubeconfig` passes it to `kubectl`."""
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
        """Returns the error of a merge patch by this account; empty: it succeeded."""
        token = json.loads(account.read_text())["users"][0]["user"]["token"]
        return self._sent("PATCH", path, patch, token, "application/merge-patch+json")

    def created(self, manifest: dict[str, Any]) -> str:
        """Returns why the API server does not create the object; empty: it created it. Fields that it does
        not know are errors, as they are for `kubectl`, which takes several times as long."""
        return self._sent("POST", f"{_collection(manifest)}?fieldValidation=Strict", manifest, self._token)

    def replaced(self, manifest: dict[str, Any]) -> str:
        """Returns why the API server does not replace the object; empty: it replaced it."""
        metadata = manifest["metadata"]
        now = self.object(manifest["kind"], metadata["name"], metadata["namespace"])
        current = {**metadata, "resourceVersion": now["metadata"]["resourceVersion"]}
        path = f"{_collection(manifest)}/{metadata['name']}?fieldValidation=Strict"
        return self._sent("PUT", path, {**manifest, "metadata": current}, self._token)

    def _sent(
        self, method: str, path: str, body: dict[str, Any], token: str, kind: str = "application/json"
    ) -> str:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        request = urllib.request.Request(
            f"{self.url}{path}", json.dumps(body).encode(), headers, method=method
        )
        try:
            urllib.request.urlopen(request, timeout=5, context=self.tls).close()
        except urllib.error.HTTPError as error:
            message: str = json.loads(error.read())["message"]
            return message
        return ""

    def kubectl(self, *words: str, given: object = None, fails: bool = False) -> str:
        """Returns the output of `kubectl`, or its stderr if it `fails`. `given`: one or more manifests, for
        `-f -`."""
        done = self._kubectl(words, given)
        assert (done.returncode != 0) == fails, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    def refusal(self, *words: str, given: object = None) -> str:
        """Returns the error of `kubectl`; empty: it succeeded."""
        done = self._kubectl(words, given)
        return done.stderr if done.returncode else ""

    def words_on(self, *words: str, given: object = None) -> str:
        """Returns errors and warnings of `kubectl`. Empty: none."""
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
        """Applies manifests in their order, with one `kubectl`."""
        self.kubectl("apply", "--server-side", "-f", "-", given=[one for each in lists for one in each])

    def add_crds(self) -> None:
        """Applies the definitions of the project."""
        self.apply(*sorted(CRDS.glob("*.yaml")))
        self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")

        def are_found() -> bool:
            found = self.kubectl("api-resources", "--api-group=tidelog.io", "--output=name")
            return set(found.split()) == {
                "clusters.tidelog.io",
                "ingestions.tidelog.io",
                "streams.tidelog.io",
            }

        # An established definition appears in discovery a moment later.
        wait_until(are_found, "kubectl knows all kinds")

        def are_served() -> bool:
            try:
                for kind in ("clusters", "ingestions", "streams"):
                    self.get(f"/apis/tidelog.io/v1alpha1/{kind}")
            except OSError:
                return False
            return True

        # The first requests may be refused while the storage of a kind is made.
        wait_until(are_served, "all kinds are served")

    def object(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """Returns the object; requested directly, because `kubectl` takes longer to start than the request
        takes."""
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


def _collection(manifest: dict[str, Any]) -> str:
    return _path(manifest["kind"], manifest["metadata"]["namespace"])


def _manifests(given: object) -> str:
    items = given if isinstance(given, list) else [given]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
