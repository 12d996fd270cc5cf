"""`tidelog stream`: create, list, describe, edit and delete streams; `output` has what they print."""
