"""The cluster's metadata as one immutable value, and the commands that change it (DESIGN section 6).

What belongs here: what the metadata log says and what may be written into it. What does
not: files, peers, elections of the log's own leader, time (M3: it enters as a field of a
command).

- `image`      the value: brokers, streams, partitions, producer-id blocks
- `commands`   what an entry of the log can say, and its bytes
- `apply`      image and command to the next image; refuses nothing
- `decide`     image and request to commands, or a typed error; refuses everything that is wrong
- `delta`      what differs between two images
- `snapshot`   an image as bytes
- `persistent` a map whose old versions stay valid
"""
