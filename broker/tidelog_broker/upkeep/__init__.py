"""What a broker does with its logs unasked: retention, checkpoints, scrubbing, healing.

`tasks` runs them. `maintenance` is the periodic task, and `age_retention` decides for it what is
old enough to delete. `scrubber` reads cold segments to find rot and `healer` replaces what rotted
from other replicas. `suspects` are replicas that may have lost what they acknowledged.

How a log is cut, saved or healed on disk belongs in `storage`.
"""
