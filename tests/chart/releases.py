"""Values of releases for tests, as different as possible."""

from __future__ import annotations

from typing import Any, Final

ANYBODY_IN_SHOP: Final = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}
PLACED: Final = {
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "tidelog", "operator": "Exists", "effect": "NoSchedule"}],
}

RELEASES: Final[dict[str, dict[str, Any]]] = {
    "as it comes": {},
    "as little as can be": {
        "crds": {"upgrade": False},
        "cluster": {"brokers": 1, "voters": 1, "resources": None},
        "operator": {"replicas": 1, "resources": None},
        "nats": {"enabled": False},
        "policy": {"enabled": False},
        "networkPolicy": {"enabled": False},
    },
    "everything said": {
        "nameOverride": "log",
        "imagePullSecrets": [{"name": "registry"}],
        "cluster": {
            "name": "orders",
            "brokers": 5,
            "voters": 5,
            "image": {"repository": "registry.example.com:5000/tidelog/broker", "tag": "1.2.3"},
            "storage": {"size": "100Gi", "storageClassName": "fast"},
            **PLACED,
            "priorityClassName": "system-cluster-critical",
            "rackLabel": "example.com/rack",
            "listeners": [
                {
                    "name": "outside",
                    "port": 9310,
                    "type": "NodePort",
                    "firstNodePort": 32669,
                    "host": "{broker}.a",
                },
                {
                    "name": "cloud",
                    "port": 9320,
                    "type": "LoadBalancer",
                    "host": "broker-{broker}.example.com",
                    "annotations": {
                        "external-dns.alpha.kubernetes.io/hostname": "broker-{broker}.example.com"
                    },
                    "loadBalancerClass": "example.com/fast",
                    "sourceRanges": ["203.0.113.0/24"],
                },
            ],
            "settings": {
                "catchUpBytesPerSecond": "64Mi",
                "scrubBytesPerSecond": 4000000,
                "produceTimeout": "10s",
                "connectionsMax": 1000000,
                "clientCallsMax": 1000000,
                "messageBytesMax": "65Mi",
                "logLevel": "debug",
            },
            "replaceAfter": "1h30m",
            "moves": {"atOnce": 10000, "balance": False},
        },
        "operator": {"replicas": 3, "namespaces": ["tidelog-system", "shop"], **PLACED},
        "nats": {"replicas": 5, "config": "max_payload: 2MB\nmax_connections: 1000", **PLACED},
        "networkPolicy": {
            "clients": [ANYBODY_IN_SHOP],
            "outside": [{"ipBlock": {"cidr": "203.0.113.0/24"}}],
            "monitoring": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        },
        "monitoring": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"},
    },
    "the operator alone": {
        "cluster": {"create": False},
        "operator": {"namespaces": ["shop", "farm"]},
        "nats": {"enabled": False},
        "monitoring": {"enabled": True},
    },
    "a way from outside": {
        "cluster": {
            "listeners": [{"name": "outside", "port": 9310, "type": "NodePort", "firstNodePort": 30000}]
        }
    },
    "another NATS": {"nats": {"enabled": False, "url": "nats://one:4222,tls://two:4222"}},
}
