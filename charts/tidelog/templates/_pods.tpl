{{/* Parts that all pods of the release have in common. */}}

{{/* Takes a list: the context, and an image among the values. */}}
{{- define "tidelog.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end }}

{{/* Fields of every pod. With tidelog.container below they fulfil the "restricted" profile. */}}
{{- define "tidelog.pod" -}}
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "tidelog.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Placement on nodes. Takes a list: the context, the part of the release, and its values. */}}
{{- define "tidelog.placement" -}}
{{- $parts := . -}}
{{- /* Affinity for nodes: a second spread constraint would count only nodes with zones. */ -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "tidelog.selector" $parts | nindent 14 }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "tidelog.selector" $parts | nindent 8 }}
{{- include "tidelog.nodes" (index . 2) }}
{{- end }}

{{/* Eligible nodes. Takes the values of a part of the release. */}}
{{- define "tidelog.nodes" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
