{{/* What all names begin with. As a part of another chart, the release's name alone would say nothing of Headrace. */}}
{{- define "headrace.fullname" -}}
{{- $name := .Release.Name -}}
{{- if not .Chart.IsRoot }}{{ $name = printf "%s-headrace" .Release.Name }}{{ end -}}
{{- default $name .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of one of its parts: (list CONTEXT PART). */}}
{{- define "headrace.name" -}}
{{- printf "%s-%s" (include "headrace.fullname" (first .)) (last .) -}}
{{- end -}}

{{/* By these, and by nothing that an upgrade changes, pods are found: (list CONTEXT COMPONENT). */}}
{{- define "headrace.selectorLabels" -}}
{{- $root := first . -}}
app.kubernetes.io/name: {{ default "headrace" $root.Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ last . }}
{{- end -}}

{{/* The labels of an object: (list CONTEXT COMPONENT), or (list CONTEXT COMPONENT MORE). */}}
{{- define "headrace.labels" -}}
{{- $root := index . 0 -}}
{{- $own := include "headrace.selectorLabels" (list $root (index . 1)) | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "headrace" -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- $more := dict -}}
{{- if gt (len .) 2 }}{{ $more = index . 2 }}{{ end -}}
{{- toYaml (mergeOverwrite (dict) $root.Values.commonLabels $more $own) -}}
{{- end -}}

{{/* The labels of a pod: (list CONTEXT COMPONENT MORE). An upgrade that changes nothing else does not restart it. */}}
{{- define "headrace.podLabels" -}}
{{- $labels := include "headrace.labels" . | fromYaml -}}
{{- toYaml (omit $labels "app.kubernetes.io/version" "helm.sh/chart") -}}
{{- end -}}

{{/* The annotations of an object, with their heading, or nothing: (list CONTEXT MORE…). Later ones win. */}}
{{- define "headrace.annotations" -}}
{{- $all := deepCopy (first .).Values.commonAnnotations -}}
{{- range rest . }}{{ $all = mergeOverwrite $all (deepCopy (default dict .)) }}{{ end -}}
{{- if $all }}annotations:
{{- range $name, $text := $all }}
  {{ $name }}: {{ $text | toString | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* An image's whole name: (list CONTEXT IMAGE). */}}
{{- define "headrace.image" -}}
{{- $root := first . -}}
{{- $image := last . -}}
{{- $name := $image.repository -}}
{{- with $root.Values.imageRegistry }}{{ $name = printf "%s/%s" (trimSuffix "/" .) $name }}{{ end -}}
{{- if $image.digest }}{{ printf "%s@%s" $name $image.digest }}
{{- else }}{{ printf "%s:%s" $name (default $root.Chart.AppVersion (toString $image.tag)) }}{{ end -}}
{{- end -}}

{{/* Whether something that can be `auto` shall be: (list SWITCH WHAT-AUTO-MEANS). The answer is "true" or nothing. */}}
{{- define "headrace.wanted" -}}
{{- $switch := toString (first .) -}}
{{- if or (eq $switch "true") (and (eq $switch "auto") (last .)) }}true{{ end -}}
{{- end -}}

{{/* Whether objects for the Prometheus operator are wanted: (list CONTEXT SWITCH). */}}
{{- define "headrace.monitored" -}}
{{- include "headrace.wanted" (list (last .) ((first .).Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
{{- end -}}

{{- define "headrace.serviceAccountName" -}}
{{- default (include "headrace.name" (list . "operator")) .Values.operator.serviceAccount.name -}}
{{- end -}}

{{/* Spread over nodes, with the selector where it is missing: (list CONTEXT COMPONENT CONSTRAINTS). */}}
{{- define "headrace.topologySpread" -}}
{{- $selector := dict "matchLabels" (include "headrace.selectorLabels" (list (index . 0) (index . 1)) | fromYaml) -}}
{{- $found := list -}}
{{- range index . 2 }}{{ $found = append $found (merge (deepCopy .) (dict "labelSelector" $selector)) }}{{ end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Where a pod may run, as its component's values say: (list CONTEXT COMPONENT VALUES). */}}
{{- define "headrace.placement" -}}
{{- $values := index . 2 -}}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- include "headrace.topologySpread" (list (index . 0) (index . 1) $values.topologySpreadConstraints) | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Whether `helm test` can run a task: the chart knows a Redis, and the operator sees the release's namespace. */}}
{{- define "headrace.tested" -}}
{{- if and .Values.tests.enabled (not .Values.redis.perTaskQueue) (or (not .Values.watchNamespaces) (has .Release.Namespace .Values.watchNamespaces)) }}true{{ end -}}
{{- end -}}
