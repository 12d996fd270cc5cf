"""Decisions: from the desired and the observed state to actions. Pure, so tests are tables of situations.

What belongs here: decisions. What does not belong here: requests (`brokers`, `kubernetes`), the execution of
actions (`apply`), and what statuses say (`reporting`).

- `cluster`    one Cluster: joins the plans below
- `owned`      the objects of a Cluster, as plans see them
- `scaling`    the number of brokers
- `volumes`    lost and damaged volumes
- `listeners`  services for clients outside of Kubernetes
- `balancing`  even distribution of replicas and leaders
- `streams`    Streams: created, adopted, changed, retained, deleted
- `ingestions`  one Ingestion: its CronJob or its continuous runs, and what prevents them
- `claimed_paths`  Ingestions and drivers with the same checkpoint or sink
- `cron`       schedules, and when they are due
- `placement`  the brokers, as plans see them, and where new replicas go
"""
