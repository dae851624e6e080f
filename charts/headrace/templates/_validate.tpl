{{/*
What no schema can say: values that contradict each other, or what cannot work. All of it is told at once, each with what to
write instead.
*/}}
{{- define "headrace.validate" -}}
{{- $found := list -}}
{{- range (list "headrace.validate.names" "headrace.validate.operator" "headrace.validate.redis" "headrace.validate.external") -}}
{{- range splitList "\n" (include . $) }}{{ with trim . }}{{ $found = append $found . }}{{ end }}{{ end -}}
{{- end -}}
{{- if $found }}{{ fail (printf "these values cannot be used:\n- %s" (join "\n- " $found)) }}{{ end -}}
{{- end -}}

{{- define "headrace.validate.names" -}}
{{- range $list := list (list "watchNamespaces" .Values.watchNamespaces) (list "redis.connectionNamespaces" .Values.redis.connectionNamespaces) (list "networkPolicy.redis.allowedNamespaces" .Values.networkPolicy.redis.allowedNamespaces) }}
{{- range last $list }}
{{- if contains "*" . }}
{{ first $list }} has {{ . | quote }}, but names are taken as they are: write each namespace, or leave the list empty for all
{{- else if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" .) }}
{{ first $list }} has {{ . | quote }}, which is not the name of a namespace
{{- end }}
{{- end }}
{{- end }}
{{- if and (not .Values.operator.serviceAccount.create) (not .Values.operator.serviceAccount.name) }}
operator.serviceAccount.create is false, so operator.serviceAccount.name must say which account to use: the namespace's default one would give these rights to every pod
{{- end }}
{{- end -}}

{{- define "headrace.validate.operator" -}}
{{- $operator := .Values.operator -}}
{{- $budget := $operator.podDisruptionBudget -}}
{{- if and (include "headrace.wanted" (list $budget.enabled (gt (int $operator.replicas) 1))) (le (int $operator.replicas) (int $budget.minAvailable)) }}
operator.podDisruptionBudget.minAvailable is {{ $budget.minAvailable }} with operator.replicas {{ $operator.replicas }}: no node with the operator could be drained; have more replicas, or switch the budget off
{{- end }}
{{- $ours := dict "--namespace" "watchNamespaces" "--lease-namespace" "the release's namespace" "--lease-name" "fullnameOverride" "--identity" "nothing: it is the pod's name" "--health-port" "nothing: the probes expect 8080" "--tenants" "operator.tenants" "--log-level" "operator.logLevel" "--log-style" "operator.logStyle" "--metrics-max-queues" "operator.metrics.maxQueues" }}
{{- range $operator.extraArgs }}
{{- $option := regexFind "^[^= ]+" . }}
{{- with get $ours $option }}
operator.extraArgs has {{ $option }}, which the chart gives by itself; instead use {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "headrace.validate.redis" -}}
{{- $redis := .Values.redis -}}
{{- $external := $redis.external -}}
{{- $given := list -}}
{{- range list "url" "existingSecret" "hosts" "username" "password" "sentinelService" "sentinelUsername" "sentinelPassword" }}
{{- if get $external . }}{{ $given = append $given (printf "redis.external.%s" .) }}{{ end }}
{{- end }}
{{- if and $redis.enabled $given }}
redis.enabled is true, and {{ join ", " $given }} speaks of another Redis; set redis.enabled=false to use yours
{{- else if and $redis.perTaskQueue (or $redis.enabled $given) }}
redis.perTaskQueue is true, so the chart has no use for a Redis; set redis.enabled=false and leave redis.external out
{{- else if not (or $redis.enabled $redis.perTaskQueue $external.url $external.existingSecret $external.hosts) }}
redis.enabled is false and redis.external says nothing; write where your Redis is (redis.external.url, hosts or existingSecret), or set redis.perTaskQueue=true if every TaskQueue names its own
{{- end }}
{{- if and $redis.auth.password (not (regexMatch "^[^-\\s]\\S{7,}$" $redis.auth.password)) }}
redis.auth.password must have 8 characters or more, no blanks, and no dash in front
{{- end }}
{{- if and $redis.auth.password $redis.auth.existingSecret }}
redis.auth.password and redis.auth.existingSecret are both given; keep one
{{- end }}
{{- if and $redis.connectionNamespaces (not (include "headrace.redis.makesSecret" .)) }}
redis.connectionNamespaces is for the connection Secret that the chart makes; with a Secret of your own, put that one into these namespaces
{{- end }}
{{- end -}}

{{- define "headrace.validate.external" -}}
{{- $external := .Values.redis.external -}}
{{- $tls := $external.tls -}}
{{- $login := or $external.username $external.password $external.sentinelUsername $external.sentinelPassword -}}
{{- $place := or $external.hosts $external.sentinelService (ne $external.mode "Standalone") (ne (int $external.db) 0) -}}
{{- if and $external.existingSecret (or $external.url $login) }}
redis.external.existingSecret has the login, so redis.external.{{ ternary "url" "username, password, sentinelUsername and sentinelPassword" (not (empty $external.url)) }} must be left out
{{- end }}
{{- if and $external.url (or $login $place) }}
redis.external.url says everything in one, so leave mode, hosts, db, sentinelService and the logins beside it out
{{- end }}
{{- if and $external.url (not (regexMatch "^rediss?(\\+sentinel|\\+cluster)?://" $external.url)) }}
redis.external.url must begin with redis://, redis+sentinel:// or redis+cluster:// (rediss for TLS)
{{- end }}
{{- if and $external.url $tls.enabled (not (hasPrefix "rediss" $external.url)) }}
redis.external.tls.enabled is true, but redis.external.url is without TLS; begin it with rediss (two s)
{{- end }}
{{- if and $external.url $tls.caSecretRef.name (not (contains "tls_ca_file=/etc/headrace/redis-tls/ca.crt" $external.url)) }}
redis.external.tls.caSecretRef takes an option in redis.external.url; add ?tls_ca_file=/etc/headrace/redis-tls/ca.crt
{{- end }}
{{- if and $tls.caSecretRef.name (not $tls.enabled) }}
redis.external.tls.caSecretRef is for TLS; set redis.external.tls.enabled=true, or leave it out
{{- end }}
{{- if and $place (not $external.hosts) }}
redis.external.{{ if $external.sentinelService }}sentinelService{{ else if ne (int $external.db) 0 }}db{{ else }}mode{{ end }} belongs to redis.external.hosts; write the hosts, or put it into the url
{{- end }}
{{- if and (eq $external.mode "Sentinel") $external.hosts (not $external.sentinelService) }}
redis.external.sentinelService is missing; write under which name the sentinels know the primary, such as mymaster
{{- end }}
{{- if and (ne $external.mode "Sentinel") (or $external.sentinelService $external.sentinelUsername $external.sentinelPassword) }}
redis.external.sentinel… is for Sentinel; set redis.external.mode=Sentinel, or leave it out
{{- end }}
{{- if and (eq $external.mode "Standalone") (gt (len $external.hosts) 1) }}
redis.external.hosts has several servers; set redis.external.mode to Sentinel or Cluster, or name one
{{- end }}
{{- if and (eq $external.mode "Cluster") (ne (int $external.db) 0) }}
redis.external.db is {{ $external.db }}, but a Redis Cluster has database 0 only
{{- end }}
{{- range $external.hosts }}
{{- if or (contains "://" .) (contains "@" .) (contains "/" .) }}
redis.external.hosts takes host or host:port, such as redis.shop.svc:6379, without a scheme, a login or a path
{{- end }}
{{- end }}
{{- end -}}
