"""Tests of identities, one file of them with a control plane."""

from support.kube.fixtures import plane, programs

__all__ = ["plane", "programs"]
