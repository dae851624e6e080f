"""The worker: claims tasks, runs their handlers, settles them. One role per file.

==============  =============================================================================================
processor       one queue's loop: settle what is done and claim what there is room for, in one round trip
handlers        tasks between their claim and their settlement: waiting for a slot, running, ended
settler         outcomes on their way to Redis; keeps them until Redis has answered
execution       one task: decode, check, run with its timeout, turn what happened into a settlement
threads         where sync handlers run
processes       where CPU-bound handlers run
running         the tasks this worker holds, and stopping them
timekeeper      stops handlers at their deadline
slots           how many tasks there is room for
ahead           how many to hold beyond those that run
heartbeat       a thread and a connection of its own: renews leases even while a handler blocks the loop
canceller       hears at once when a running task is to be stopped
janitor         promotion, recovery and purging, so that a queue stays healthy with no operator
health_port     the port of it, opened before everything else
metrics         what it tells Prometheus of itself
pool            which pool it belongs to
health          liveness (the claim loop moves) and readiness, over HTTP
worker          puts them together; start, drain, stop
==============  =============================================================================================

What does not belong here: anything about Redis (`headrace.queue`) and how tasks are enqueued
(`headrace.app`).
"""
