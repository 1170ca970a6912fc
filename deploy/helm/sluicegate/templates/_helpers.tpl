{{- define "sluicegate.name" -}}
{{- if contains "sluicegate" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-sluicegate" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "sluicegate.selector" -}}
app.kubernetes.io/name: sluicegate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sluicegate.labels" -}}
{{ include "sluicegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Settings of the server as variables: the keys of docs/configuration.md. */}}
{{- define "sluicegate.settings" -}}
{{- $settings := dict
  "server.drain_delay" .Values.drainDelay
  "http.listen" "0.0.0.0:8080"
  "rls.listen" (ternary "0.0.0.0:8081" "off" .Values.ports.grpc)
  "resp.listen" (ternary "0.0.0.0:6380" "off" .Values.ports.resp)
  "admin.listen" "127.0.0.1:8082"
  "log.format" "json" }}
{{- if .Values.metrics.enabled }}{{ $_ := set $settings "metrics.listen" "0.0.0.0:8084" }}{{ end }}
{{- if .Values.catalog.secretName }}
{{- $_ := set $settings "catalog.url_file" (printf "/run/secrets/sluicegate/catalog/%s" .Values.catalog.secretKey) }}
{{- $_ := set $settings "catalog.kept" "/var/lib/sluicegate/catalog.json" }}
{{- $_ := set $settings "catalog.listen" "127.0.0.1:8083" }}
{{- if .Values.catalog.insecure }}{{ $_ := set $settings "catalog.url_insecure" true }}{{ end }}
{{- else }}
{{- $_ := set $settings "policies.path" "/etc/sluicegate/policies" }}
{{- $_ := set $settings "http.insecure" true }}
{{- if .Values.ports.grpc }}{{ $_ := set $settings "rls.insecure" true }}{{ end }}
{{- if .Values.ports.resp }}{{ $_ := set $settings "resp.insecure" true }}{{ end }}
{{- end }}
{{- if .Values.redis.secretName }}
{{- $_ := set $settings "store.url_file" (printf "/run/secrets/sluicegate/redis/%s" .Values.redis.secretKey) }}
{{- if .Values.redis.insecure }}{{ $_ := set $settings "store.url_insecure" true }}{{ end }}
{{- else }}
{{- $_ := set $settings "store.snapshot" "/var/lib/sluicegate/counters.snap" }}
{{- $_ := set $settings "store.snapshot_every" "10s" }}
{{- end }}
{{- range $key, $value := merge (deepCopy .Values.settings) $settings }}
{{- /* Numbers of values are floats, which would be written as 2e+06. */}}
{{- $text := toString $value }}
{{- if kindIs "float64" $value }}{{ if eq $value (float64 (int64 $value)) }}{{ $text = toString (int64 $value) }}{{ end }}{{ end }}
SLUICEGATE__{{ $key | replace "." "__" | upper }}: {{ $text | quote }}
{{- end }}
{{- end }}
