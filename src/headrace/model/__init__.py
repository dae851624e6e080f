"""The vocabulary of Headrace: plain values and pure decisions.

What belongs here: task and worker states, queue configuration, selection, retry arithmetic, names,
payload rules, outcomes and errors. What does not: anything that opens a socket, reads a clock that
cannot be injected, or knows how Redis stores things. Nothing in here imports another room of the package.
"""
