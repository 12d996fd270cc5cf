{{/* The URL of NATS for the brokers. Empty: none. */}}
{{- define "tidelog.natsUrl" -}}
{{- if .Values.nats.enabled -}}
nats://{{ include "tidelog.nats" . }}.{{ .Release.Namespace }}.svc:4222
{{- else -}}
{{ .Values.nats.url }}
{{- end -}}
{{- end }}

{{/* The settings file of the servers. */}}
{{- define "tidelog.natsConfig" -}}
{{- $name := include "tidelog.nats" . -}}
server_name: $POD_NAME
port: 4222
http: 8222
pid_file: /tmp/nats.pid

# A server that stops accepts no more clients, and after the grace period sends its clients to other servers, a few at
# a time.
lame_duck_grace_period: 5s
lame_duck_duration: 30s

cluster {
  name: {{ $name }}
  port: 6222
  routes: [
    {{- range $number := until (int .Values.nats.replicas) }}
    nats://{{ $name }}-{{ $number }}.{{ $name }}-servers.{{ $.Release.Namespace }}.svc:6222
    {{- end }}
  ]
}
{{- with .Values.nats.config }}
{{ . }}
{{- end }}
{{- end }}
