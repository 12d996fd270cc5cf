"""A real Kubernetes cluster on this machine: a control plane and up to nine nodes, each with a container
runtime, a kubelet, a proxy and a network of its own.

For tests: it needs root, Linux, and the programs that `tools/kube/binaries.sh build cluster` builds; no
container engine and no image registry. The cluster's networks are reached only through `kubectl` and `run`,
and the cluster reaches nothing outside: `load-image` loads images.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import typer

from e2e.cluster.cluster import Cluster
from e2e.cluster.layout import Layout, default_folder
from e2e.cluster.processes import ClusterError
from e2e.cluster.program_image import write_program_image

BINARIES: Final = Path(__file__).parents[2] / "tools" / "kube" / "binaries.sh"

app = typer.Typer(
    name="python -m e2e.cluster",
    help=__doc__,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
PASSED_ON: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
NODE: Final = typer.Argument(help="A node's number, from 1.")
FOR_GOOD: Final = typer.Option(False, "--for-good", help="Its disk is lost, too.")
IMAGE: Final = typer.Argument(help="As `docker save` writes it.")


def open_cluster(*, up: bool = True) -> Cluster:
    """Returns the cluster; the environment variable TIDELOG_CLUSTER_STATE names its folder."""
    found = subprocess.run([BINARIES, "where", "cluster"], capture_output=True, text=True, check=False)
    if found.returncode:
        raise ClusterError(found.stderr.strip())
    folder = os.environ.get("TIDELOG_CLUSTER_STATE") or default_folder()
    cluster = Cluster(Layout(Path(folder).resolve(), Path(found.stdout.strip())))
    if up:
        cluster.needs_to_be_up()
    return cluster


@app.command()
def up(nodes: int = typer.Argument(3, help="How many nodes.")) -> None:
    """Start a cluster, and wait until all its nodes are ready."""
    seconds = open_cluster(up=False).up(nodes)
    typer.echo(f"{nodes} nodes are ready after {seconds:.0f} s", err=True)


@app.command()
def down() -> None:
    """Stop it, and remove everything but its logs."""
    open_cluster(up=False).down()


@app.command()
def node_up(number: int = NODE) -> None:
    """Start one more node, or one that lost its power; wait until it is ready."""
    node = open_cluster().node(number)
    node.start()
    node.wait_until_ready()


@app.command()
def node_down(number: int = NODE, for_good: bool = FOR_GOOD) -> None:
    """Cut the power of a node. Its object, its disk, and the volumes of its pods stay."""
    node = open_cluster().node(number)
    if for_good:
        node.erase()
    else:
        node.stop()


@app.command()
def partition(number: int = NODE) -> None:
    """Isolate the network of a node; its pods continue to run."""
    open_cluster().node(number).cut_off()


@app.command()
def heal(number: int = NODE) -> None:
    """End `partition`."""
    open_cluster().node(number).cut_off(ends=True)


@app.command()
def load_image(file: Path = IMAGE) -> None:
    """Load an image into every node, and into later ones."""
    open_cluster().load_image(file)


@app.command()
def write_image(program: Path, name: str, target: Path) -> None:
    """Write an image of one static program, without a container engine."""
    write_program_image(program, name, target)


@app.command()
def pod_pid(pod: str, namespace: str = typer.Option("default", "-n", "--namespace")) -> None:
    """Print the process id of the first process of a pod's first container on this machine, for kill or
    stop."""
    typer.echo(open_cluster().container_pid(pod, namespace))


@app.command(context_settings=PASSED_ON)
def kubectl(words: list[str]) -> None:
    """Run kubectl as the cluster's administrator."""
    _become("kubectl", *words)


@app.command(context_settings=PASSED_ON)
def run(words: list[str]) -> None:
    """Run any program on the cluster's network, as its administrator, for example `run helm list`."""
    _become(*words)


def _become(*words: str) -> None:
    command = open_cluster().plane.command(*words)
    os.execvp(command[0], command)


def main() -> None:
    try:
        app()
    except ClusterError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
