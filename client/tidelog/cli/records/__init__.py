"""Records on the command line: `tidelog produce`, `consume` and `dump`.

`input` reads the input of `produce`, and `stalls` says why it waits. `record_output` writes the output of
`consume`. `record_json` turns records into JSON and back.
"""
