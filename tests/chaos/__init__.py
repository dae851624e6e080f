"""Fault drills: something breaks all the while, and every task is followed until it is settled.

Each drill is a test with a short form (part of ``make test``) and a long one (``make drill``). They differ in
numbers only. One job per file:

==================  =========================================================================================
forms               how much of everything: short, medium or long
drill_app           what the workers run
marks               the executions, written by handlers where neither a kill nor an outage can lose them
producing           tasks on their way in, and the list of those that were confirmed
places              where tasks are in Redis: the one file here that knows the keys and the task's hash
checker             looks all the while, and goes red at the first thing that does not add up
fleet               worker processes that are replaced when they die
drill               puts these together
report, publish     a row per drill: as JSON under build/, and as the table in docs/reliability.md
many_workers        a process with many workers in it
skewed_producer     a producer with a clock of its own
==================  =========================================================================================

The tests beside them are the drills, and ``test_checker_can_fail`` proves that the checker goes red.
"""
