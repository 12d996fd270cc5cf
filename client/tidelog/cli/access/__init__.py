"""`tidelog acl`, `tidelog token`, `tidelog whoami`: who may do what, and how clients are known.

- `acl`     the commands for rules
- `token`   the commands for tokens
- `whoami`  the principal of this command line
"""
