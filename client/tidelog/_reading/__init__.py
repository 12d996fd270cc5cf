"""From a start position to batches in the consumer's hands.

`start_and_end` finds where a partition is read from and to. `calls` runs Fetch calls, one for each
leader, over the partitions in `groups`. `fetching` checks each answer and cuts it to what was asked
for, and `consumed` remembers how far the consumer has come.

The public class is `tidelog.reader.Reader`.
"""
