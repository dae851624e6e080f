"""The operator: makes TaskQueues and WorkerPools true, on a cluster and in Redis.

What belongs here: reading custom resources, building the objects they stand for, deciding, and reporting back in their
status. What does not: how tasks are stored, moved or run. That is in `headrace`, which knows nothing of Kubernetes and
works without an operator.

Three modules are pure, without a clock or a connection of their own, and can be read first:

=========  ==========================================================================================================
resources  a manifest in, typed values out; an error names the field and says what to write there
manifests  a pool and its queues in, the objects of its workers out
status     figures and findings in, conditions and the whole status out
=========  ==========================================================================================================

`resources` stands on `queue_config`, `redis_reference`, `pod_template` and `reading`, which are pure as well.

The folder around this package is none itself: a package called ``operator`` would hide the standard library's.
"""
