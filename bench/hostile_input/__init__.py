"""What hostile input costs a broker and its other clients: memory, turns of the event loop, waiting.

``PYTHONPATH=tests python -m bench.hostile_input`` runs every case against a broker of its own and prints
a table. With ``--minutes 10`` it puts ten times as much load on one broker for that long instead, and prints
the broker's memory every ten seconds.

- `__main__`: the command and its table.
- `catalog`: the cases by name.
- `bombs`: batches that decode to much.
- `stalled`: readers that stop reading.
- `messages`: large messages, and messages of many parts.
- `crowds`: very many calls or connections.
- `measuring`: runs a case and watches the broker.
- `probe`: the small requests beside a case.
- `endurance`: the long run.
"""
