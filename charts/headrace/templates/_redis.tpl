{{/*
Which Redis the chart speaks of. Either it makes the connection Secret itself, with the key `url`, because it knows the
login; or there is a Secret of the user's. That one has a `url` too, or it has the login alone, and then the hosts stand
beside it.
*/}}

{{- define "headrace.redis.host" -}}
{{- printf "%s.%s.svc" (include "headrace.name" (list . "redis")) .Release.Namespace -}}
{{- end -}}

{{/* "true" when the chart makes the connection Secret. */}}
{{- define "headrace.redis.makesSecret" -}}
{{- $redis := .Values.redis -}}
{{- if not (or $redis.perTaskQueue (ternary $redis.auth.existingSecret $redis.external.existingSecret $redis.enabled)) }}true{{ end -}}
{{- end -}}

{{/* The name of the Secret that TaskQueues refer to. */}}
{{- define "headrace.redis.secretName" -}}
{{- if include "headrace.redis.makesSecret" . }}{{ include "headrace.name" (list . "redis") }}
{{- else }}{{ ternary .Values.redis.auth.existingSecret .Values.redis.external.existingSecret .Values.redis.enabled }}{{ end -}}
{{- end -}}

{{/* Where Redis is, when no Secret has the whole URL: mode, hosts, db, sentinelService and tls of a TaskQueue. */}}
{{- define "headrace.redis.place" -}}
{{- if .Values.redis.enabled -}}
hosts: [{{ printf "%s:6379" (include "headrace.redis.host" .) | quote }}]
{{- else -}}
{{- $external := .Values.redis.external -}}
mode: {{ $external.mode }}
hosts: {{ toJson $external.hosts }}
{{- with $external.db }}
db: {{ . }}
{{- end }}
{{- with $external.sentinelService }}
sentinelService: {{ . | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* "true" when the login alone is in a Secret of the user's. */}}
{{- define "headrace.redis.loginOnly" -}}
{{- if not (or .Values.redis.perTaskQueue (include "headrace.redis.makesSecret" .)) -}}
{{- if or .Values.redis.enabled .Values.redis.external.hosts }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* `spec.redis` of a TaskQueue in the release's namespace. */}}
{{- define "headrace.redis.spec" -}}
{{- if include "headrace.redis.loginOnly" . }}{{ include "headrace.redis.place" . | nindent 0 }}{{ end }}
secretRef:
  name: {{ include "headrace.redis.secretName" . }}
{{- $tls := .Values.redis.external.tls }}
{{- if and (not .Values.redis.enabled) $tls.enabled }}
tls:
  enabled: true
  {{- if $tls.caSecretRef.name }}
  caSecretRef:
    {{- toYaml $tls.caSecretRef | nindent 4 }}
  {{- end }}
  {{- if not $tls.checkHostname }}
  checkHostname: false
  {{- end }}
{{- end }}
{{- end -}}

{{/* The URL of the user's hosts: (list CONTEXT LOGIN), with the login as it stands before the @, or empty. */}}
{{- define "headrace.redis.externalUrl" -}}
{{- $root := first . -}}
{{- $external := $root.Values.redis.external -}}
{{- $scheme := ternary "rediss" "redis" $external.tls.enabled -}}
{{- $options := list -}}
{{- $path := printf "/%d" (int $external.db) -}}
{{- if eq $external.mode "Sentinel" }}
{{- $scheme = printf "%s+sentinel" $scheme }}
{{- $path = printf "/%s/%d" $external.sentinelService (int $external.db) }}
{{- else if eq $external.mode "Cluster" }}
{{- $scheme = printf "%s+cluster" $scheme }}
{{- $path = "" }}
{{- end }}
{{- if $external.tls.enabled }}
{{- if $external.tls.caSecretRef.name }}{{ $options = append $options "tls_ca_file=/etc/headrace/redis-tls/ca.crt" }}{{ end }}
{{- if not $external.tls.checkHostname }}{{ $options = append $options "tls_check_hostname=false" }}{{ end }}
{{- end }}
{{- if and (last .) (eq $external.mode "Sentinel") }}
{{- with $external.sentinelUsername }}{{ $options = append $options (printf "sentinel_username=%s" (include "headrace.urlPart" .)) }}{{ end }}
{{- with $external.sentinelPassword }}{{ $options = append $options (printf "sentinel_password=%s" (include "headrace.urlPart" .)) }}{{ end }}
{{- end }}
{{- $login := "" -}}
{{- if and (last .) (or $external.username $external.password) }}
{{- $login = printf "%s:%s@" (include "headrace.urlPart" $external.username) (include "headrace.urlPart" $external.password) }}
{{- end }}
{{- printf "%s://%s%s%s" $scheme $login (join "," $external.hosts) $path -}}
{{- if $options }}?{{ join "&" $options }}{{ end -}}
{{- end -}}

{{/* Percent-encoded: in a path or login a plus is a plus. */}}
{{- define "headrace.urlPart" -}}
{{- urlquery . | replace "+" "%20" -}}
{{- end -}}

{{/* The variables by which a pod in the release's namespace finds this Redis, as the operator gives them to workers. */}}
{{- define "headrace.redis.env" -}}
{{- $secret := include "headrace.redis.secretName" . -}}
- name: HEADRACE_REDIS_URL
{{- if include "headrace.redis.loginOnly" . }}
  {{- if .Values.redis.enabled }}
  value: {{ printf "redis://%s:6379/0" (include "headrace.redis.host" .) | quote }}
  {{- else }}
  value: {{ include "headrace.redis.externalUrl" (list . false) | quote }}
  {{- end }}
{{- range list "username" "password" "sentinel-username" "sentinel-password" }}
- name: HEADRACE_REDIS_{{ . | upper | replace "-" "_" }}
  valueFrom:
    secretKeyRef: {name: {{ $secret | quote }}, key: {{ . }}, optional: true}
{{- end }}
{{- else }}
  valueFrom:
    secretKeyRef: {name: {{ $secret | quote }}, key: url}
{{- end }}
{{- end -}}

{{/* "true" when the authority of Redis' certificate is in a Secret. */}}
{{- define "headrace.redis.hasAuthority" -}}
{{- if and (not .Values.redis.enabled) .Values.redis.external.tls.enabled .Values.redis.external.tls.caSecretRef.name }}true{{ end -}}
{{- end -}}
