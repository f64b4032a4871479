{{/* Labels of everything: those of kustomize, and Helm's. They take precedence over commonLabels. */}}
{{- define "ostiary.labels" -}}
{{- $own := dict "app.kubernetes.io/name" "ostiary" "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/managed-by" .Release.Service "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") }}
{{- merge $own .Values.commonLabels | toYaml }}
{{- end }}

{{/*
The metadata of an object in a template.
  root: the context; name; labels, annotations: further ones; clusterScoped
*/}}
{{- define "ostiary.metadata" -}}
name: {{ .name }}
{{- if not .clusterScoped }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
labels:
  {{- mergeOverwrite (include "ostiary.labels" .root | fromYaml) (.labels | default dict) | toYaml | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Selects the manager's pods. One cluster has one Ostiary, so the release is not part of it. */}}
{{- define "ostiary.selector" -}}
app.kubernetes.io/name: ostiary
app.kubernetes.io/component: manager
{{- end }}

{{- define "ostiary.image" -}}
{{- with .Values.image }}
{{- with .registry }}{{ . }}/{{ end }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The name of the manager's ServiceAccount. */}}
{{- define "ostiary.account" -}}
{{- $name := .Values.serviceAccount.name }}
{{- if has $name (list "ostiary-params" "ostiary-lookups" "ostiary-self-test" "ostiary-uninstall") }}
{{- fail (printf "serviceAccount.name: %q is another account of the chart: choose another name" $name) }}
{{- end }}
{{- if not (or $name .Values.serviceAccount.create) }}
{{- fail "serviceAccount.name: required because serviceAccount.create is false: give the name of an existing ServiceAccount" }}
{{- end }}
{{- $name | default "ostiary" }}
{{- end }}

{{/* The port of an address, host:port; empty if it is disabled. */}}
{{- define "ostiary.port" -}}
{{- if ne . "0" }}{{ splitList ":" . | last }}{{ end }}
{{- end }}

{{/*
The objects in a file of config, with the namespace, labels and annotations of the release, for
its ServiceAccount, and without what the values exclude.
  root: the context; file: below files/; labels and annotations: further ones
*/}}
{{- define "ostiary.objects" -}}
{{- $root := .root -}}
{{- $account := include "ostiary.account" $root -}}
{{- range splitList "\n---\n" ($root.Files.Get (printf "files/%s" .file) | replace "ostiary-system" $root.Release.Namespace) }}
{{- $object := fromYaml . }}
{{- $metadata := $object.metadata }}
{{- $isRBAC := hasPrefix "rbac.authorization.k8s.io/" $object.apiVersion }}
{{- $isAccount := and (eq $object.kind "ServiceAccount") (eq $metadata.name "ostiary") }}
{{- if $isAccount }}
{{- $_ := set $metadata "name" $account }}
{{- end }}
{{- range $object.subjects }}
{{- if eq .name "ostiary" }}
{{- $_ := set . "name" $account }}
{{- end }}
{{- end }}
{{- $labels := merge ($metadata.labels | default dict) (include "ostiary.labels" $root | fromYaml) }}
{{- $_ := set $metadata "labels" (mergeOverwrite $labels ($.labels | default dict)) }}
{{- with merge (dict) ($.annotations | default dict) ($metadata.annotations | default dict) $root.Values.commonAnnotations }}
{{- $_ := set $metadata "annotations" . }}
{{- end }}
{{- if not (or (and $isRBAC (not $root.Values.rbac.create)) (and $isAccount (not $root.Values.serviceAccount.create))) }}
---
{{ toYaml $object }}
{{- end }}
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
