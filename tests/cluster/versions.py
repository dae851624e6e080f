"""What a cluster is made of. Every cache key holds these, so changing one builds anew what depends on it."""

from __future__ import annotations

# The oldest Go that builds this Kubernetes, and whose behaviour its programs expect of the runtime.
GO = "1.24.0"
KUBERNETES = "v1.34.4"
# Kubernetes publishes the modules of its staging folder under this version of the same release.
KUBERNETES_STAGING = "v0.34.4"
KIND = "v0.33.0"
HELM = "v3.19.2"
# The version that kubeadm of this Kubernetes names for its image.
ETCD = "v3.6.5"
# kubeadm names v1.12.1, which does not compile with this Kubernetes' client-go; the image keeps kubeadm's name.
COREDNS = "v1.13.1"

DEBIAN_SUITE = "bookworm"

# The node image that this version of kind was released with.
OFFICIAL_NODE_IMAGE = "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
# The same Python on the same Debian as the base image that we make where none can be pulled.
OFFICIAL_PYTHON_IMAGE = "python:3.11-slim-bookworm"
