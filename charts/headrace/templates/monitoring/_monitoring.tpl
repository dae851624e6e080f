{{/* How often and how an endpoint is read. The labels are ours: `namespace` is the queue's or the pool's. */}}
{{- define "headrace.scraping" -}}
honorLabels: true
interval: {{ .interval }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
All groups of `rules/*.yaml` as one document, or nothing. Each file is a Prometheus rules file that is run as a template first.
*/}}
{{- define "headrace.rules" -}}
{{- $groups := list -}}
{{- range $path, $_ := .Files.Glob "rules/*.yaml" -}}
{{- $file := tpl ($.Files.Get $path) $ | fromYaml -}}
{{- if hasKey $file "Error" }}{{ fail (printf "%s does not become YAML: %s" $path $file.Error) }}{{ end -}}
{{- range $file.groups }}{{ if .rules }}{{ $groups = append $groups . }}{{ end }}{{ end -}}
{{- end -}}
{{- if $groups }}{{ toYaml (dict "groups" $groups) }}{{ end -}}
{{- end -}}
