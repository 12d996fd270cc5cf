"""Users of a cluster, with the client library in them: `producers`, `readers`, and `renewals` of a stream."""
