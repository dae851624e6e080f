{{/* What makes an object a part of `helm test`: (list CONTEXT WEIGHT). Objects of a test that has ended are gone. */}}
{{- define "headrace.testHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ last . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* The queue, the pool and the pod of the test. A pool's name has 37 characters at most. */}}
{{- define "headrace.testName" -}}
{{- printf "%s-test" (include "headrace.fullname" . | trunc 32 | trimSuffix "-") -}}
{{- end -}}
