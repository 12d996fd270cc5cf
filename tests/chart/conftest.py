"""Tests of the chart: as Helm renders it, and as a control plane accepts it."""

from support.kube.fixtures import plane, programs

__all__ = ["plane", "programs"]
