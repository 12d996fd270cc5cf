"""What stands in Kubernetes for a Cluster, as manifests made from it: pure, the same for the same Cluster.

Each says everything that the operator owns of its object (server-side apply), and carries a hash of that:
`is_so` tells whether the object that is there says all of it.
"""
