"""Finds out who calls: from a token or a certificate to a principal (docs/access.md, A1 to A3).

What belongs here: the sources of identities. What does not: what a principal may do, which is
`core.metadata.permissions`, and how a call carries its credentials, which `api` knows.

- `identity`         a principal, its groups, and whether its credentials are still good
- `authentication`   asks the sources, and keeps calls and their credentials under watch
- `certificates`     client certificates
- `cluster_tokens`   tokens of the cluster, whose hashes are metadata
- `local_token`      a token in the data directory, for commands on the broker's machine
- `json_web_tokens`  what is common to tokens of other issuers
- `remembered`       facts about tokens, by their hash
- `service_accounts` tokens of Kubernetes service accounts, which the API server reviews
- `sources`          what the API server and the provider say, read over HTTP
- `openid`           tokens of an OpenID Connect provider, verified with its keys
"""
