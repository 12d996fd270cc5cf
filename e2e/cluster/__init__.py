"""A Kubernetes cluster on one machine; `python -m e2e.cluster --help` lists what it can do.

- `cluster`        all of it: start, stop, and faults of nodes
- `control_plane`  etcd, the API server, the controllers, the scheduler, DNS
- `node`           a container runtime, a kubelet and a proxy
- `machines`       network and mount namespaces; `control_groups` the processes of a machine
- `processes`      processes that outlive the program that started them
- `certificates`, `layout`, `program_image`  the certificates, the files and addresses, images of one program
"""
