"""A Kubernetes cluster for the tests: ``make cluster`` and ``make cluster-down``.

It is always kind. Where Docker runs and the official node image can be pulled, kind uses these. Elsewhere a private
dockerd is started, and the node image is put together from Go modules and Debian packages; ``docs/cluster.md``
tells how. What belongs here is the making and taking down of clusters; what runs on them does not.

    from tests.cluster.lifecycle import up, down
    cluster = up("mine", nodes=3)
    subprocess.run(["kubectl", "get", "nodes"], env=os.environ | cluster.environment())
    down("mine")
"""
