"""Tests of the operator, many of them with a control plane."""

from support.kube.fixtures import plane, programs

__all__ = ["plane", "programs"]
