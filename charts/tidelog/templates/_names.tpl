{{/* Names, labels and selectors. Release names may hold dots, names of services may not. */}}

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

{{/* For what belongs to no namespace. No namespace holds a dot, so two releases never share such a name. */}}
{{- define "tidelog.global" -}}
{{ .Release.Namespace }}.{{ include "tidelog.name" . }}
{{- end }}

{{/* Where the operator looks after Clusters and Streams, as a JSON list. Empty: everywhere. */}}
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

{{/* The same. It can never change: nor can the selector of a Deployment. */}}
{{- define "tidelog.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: tidelog-{{ index . 1 }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
{{- end }}

{{/* The labels that the operator gives to the pods and services of the release's Cluster. */}}
{{- define "tidelog.brokers" -}}
app.kubernetes.io/name: tidelog-broker
tidelog.io/cluster: {{ .Values.cluster.name | quote }}
{{- end }}
