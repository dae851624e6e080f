"""One reconcile function per kind: look at the object, make it true, say how it is. Nothing here waits for long."""
