"""The background work on a broker's logs: retention, checkpoints, scrubbing, healing.

`tasks` runs it. `maintenance` is the periodic task, and `age_retention` decides for it which segments
are old enough to delete. `scrubber` reads cold segments to find rot, and `healer` replaces damaged ranges
with data from other replicas. `suspects` reports replicas that may have lost acknowledged records.

How a log is cut, saved or healed on disk belongs in `storage`.
"""
