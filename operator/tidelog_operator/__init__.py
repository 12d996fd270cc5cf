"""The operator: has brokers on Kubernetes be what Clusters and Streams say (DESIGN section 12).

What belongs here: what objects ask for, what is there, what to do about the difference. What does not:
how brokers replicate, elect and recover; they do that without Kubernetes, and the operator only tells
them where copies lie. It never holds state of its own: killed at any point, it looks again and goes on.

Read, then plan, then write:

- `model`     manifests as values
- `observe`   what objects, pods, volumes and brokers are now
- `plan`      pure: from what is observed to actions
- `actions`   what can be done, as values
- `apply`     the only writer
- `status`    pure: what objects are told of themselves
- `events`    pure: what people are told of single things that were done

Around it:

- `handlers`  which objects are watched; the only file that knows kopf
- `loop`      whose turn it is, and again when it failed
- `leading`   one operator at a time
- `reports`   where what was done is told: events (`event_writer`), metrics; `http` serves them
"""
