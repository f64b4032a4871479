{{/* Labels of everything: those of kustomize, and Helm's. */}}
{{- define "ostiary.labels" -}}
app.kubernetes.io/name: ostiary
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Selects the manager's pods. One cluster has one Ostiary, so the release is not part of it. */}}
{{- define "ostiary.selector" -}}
app.kubernetes.io/name: ostiary
app.kubernetes.io/component: manager
{{- end }}

{{- define "ostiary.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The port of an address, host:port; empty if it is disabled. */}}
{{- define "ostiary.port" -}}
{{- if ne . "0" }}{{ splitList ":" . | last }}{{ end }}
{{- end }}

{{/*
The objects in a file of config, with the namespace and the labels of the release.
  root: the context; file: below files/; labels and annotations: further ones
*/}}
{{- define "ostiary.objects" -}}
{{- $root := .root -}}
{{- range splitList "\n---\n" ($root.Files.Get (printf "files/%s" .file) | replace "ostiary-system" $root.Release.Namespace) }}
{{- $object := fromYaml . }}
{{- $own := include "ostiary.labels" $root | fromYaml }}
{{- $_ := set $object.metadata "labels" (mergeOverwrite ($object.metadata.labels | default dict) $own ($.labels | default dict)) }}
{{- with $.annotations }}
{{- $_ := set $object.metadata "annotations" (mergeOverwrite ($object.metadata.annotations | default dict) .) }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}

{{/* The Pod Security Standard restricted requires this of every pod. */}}
{{- define "ostiary.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "ostiary.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
