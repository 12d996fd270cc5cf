"""TLS: the certificate of this broker, and the names in the certificates of others.

Here belong files of certificates, their checks, and the contexts of `ssl` that follow the files. What a
connection carries does not: `peers` asks for a context and for the name behind a connection.

- `names`        the name of a broker in a certificate
- `files`        reads the files of one broker, and checks that they fit together
- `following`    the files, read again when they change
- `credentials`  the contexts for connections between brokers
"""
