{{/* Names, labels and selectors. Names of releases may contain dots, names of services may not. */}}

{{- define "tidelog.name" -}}
{{ .Values.nameOverride | default .Release.Name | replace "." "-" | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "tidelog.operator" -}}
{{ include "tidelog.name" . }}-operator
{{- end }}

{{- define "tidelog.nats" -}}
{{ include "tidelog.name" . }}-nats
{{- end }}

{{- define "tidelog.definitions" -}}
{{ include "tidelog.name" . }}-definitions
{{- end }}

{{/* Prefix for objects without a namespace. Namespaces contain no dot, so two releases never share this prefix. */}}
{{- define "tidelog.global" -}}
{{ .Release.Namespace }}.{{ include "tidelog.name" . }}
{{- end }}

{{/* The namespaces that the operator watches, as a JSON list. Empty: all. */}}
{{- define "tidelog.namespaces" -}}
{{- if .Values.operator.allNamespaces -}}[]{{- else -}}
{{ append .Values.operator.namespaces .Release.Namespace | uniq | sortAlpha | toJson }}
{{- end -}}
{{- end }}

{{/* Takes a list: the context, and which part of the release. */}}
{{- define "tidelog.labels" -}}
{{- $root := index . 0 -}}
{{ include "tidelog.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tidelog
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Takes the same list. It can never change, because the selector of a Deployment cannot. */}}
{{- define "tidelog.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: tidelog-{{ index . 1 }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
{{- end }}

{{/* The labels that the operator sets on the pods and services of the release's Cluster. */}}
{{- define "tidelog.brokers" -}}
app.kubernetes.io/name: tidelog-broker
tidelog.io/cluster: {{ .Values.cluster.name | quote }}
{{- end }}
