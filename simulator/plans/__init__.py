"""What kind of run it is: `plan` says what can be said, `swarm` draws one by seed, `profiles` vary it."""
