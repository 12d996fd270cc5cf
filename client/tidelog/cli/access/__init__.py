"""`tidelog acl`, `token`, `quota`, `whoami`: who may do what, and how clients are known.

- `acl`     the commands for rules
- `token`   the commands for tokens
- `quota`   the commands for quotas
- `whoami`  the principal of this command line
"""
