"""`tidelog stream`: `command` has the commands, `output` what they print."""
