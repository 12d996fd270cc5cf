"""Records on the command line: `tidelog produce`, `consume` and `dump`.

`input` reads what `produce` is given, `record_output` writes what `consume` has read, and
`record_json` is a record as JSON, both ways.
"""
