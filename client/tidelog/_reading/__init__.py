"""From a start position to the batches that the consumer gets.

- `start_and_end`  the offsets at which reading a partition begins and ends
- `find_positions` positions in the partitions of many streams, with few requests
- `calls`          the Fetch calls, one for each leader
- `groups`         the partitions that share a call
- `fetching`       checks each answer and cuts it to the requested offsets
- `consumed`       the records that the consumer has taken

The public class is `tidelog.reader.Reader`.
"""
