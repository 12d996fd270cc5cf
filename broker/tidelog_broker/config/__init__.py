"""The settings of a broker, and where they come from.

- `settings`   all settings, with their defaults and descriptions
- `checks`     checks of single settings
- `loading`    reads them from flags, the environment and a file
- `sentences`  what people are told of wrong values
"""
