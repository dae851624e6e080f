{{/*
What the operator does in the namespaces of its users, and nothing else; a test compares this list with the requests that it
makes. Verbs are missing where they are not needed, not by oversight: it never deletes a custom resource or a pod, and it
has no finalizer to write, so a namespace can be deleted while it is away.

Its children name their WorkerPool as an owner that blocks deletion. Where the admission plugin
OwnerReferencesPermissionEnforcement runs (OpenShift has it), that takes the verb `update` on `workerpools/finalizers` as well.
*/}}
{{- define "headrace.operator.rules" -}}
# The spec belongs to people: it is read, and answered in the status.
- apiGroups: [headrace.dev]
  resources: [taskqueues, workerpools]
  verbs: [list, watch]
- apiGroups: [headrace.dev]
  resources: [taskqueues/status, workerpools/status]
  verbs: [patch]
# A Deployment for each revision of a pool's worker template; `patch` is server-side apply. When the last worker of a
# former revision has gone, its Deployment is deleted.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list, watch, create, patch, delete]
# The number of workers is written here and nowhere else, so that applying the template again cannot change it.
- apiGroups: [apps]
  resources: [deployments/scale]
  verbs: [patch]
# Workers are told from each other by their pods; the patch says which of them a Deployment shall give up first.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
# One at a time and by the name that a TaskQueue gives, in that TaskQueue's own namespace. They cannot be listed.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
# Whether a service account lets workers use it.
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get]
# What people want to know.
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- with .Values.rbac.extraRules }}
{{ toYaml . }}
{{- end }}
{{- end -}}
