{{- define "ostiary-policies.labels" -}}
app.kubernetes.io/name: ostiary-policies
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/*
All entries of one list of exclude, as {list: [...]}.
  root: the context; category and policy: their values; field: namespaces, users or groups
*/}}
{{- define "ostiary-policies.excluded" -}}
{{- $list := list }}
{{- range list .root.Values .category .policy }}
{{- with .exclude }}
{{- $list = concat $list (index . $.field | default list) }}
{{- end }}
{{- end }}
{{- dict "list" ($list | uniq) | toYaml }}
{{- end }}

{{/*
Sets in a policy what the values say.
  root: the context; object: the policy; category and policy: their values
*/}}
{{- define "ostiary-policies.configure" -}}
{{- $spec := .object.spec }}
{{- $_ := set .object.metadata "labels" (merge .object.metadata.labels (include "ostiary-policies.labels" .root | fromYaml)) }}
{{- with .policy.params }}
{{- $_ := set (first $spec.variables) "expression" (toJson .) }}
{{- end }}
{{- if $spec.validations }}
{{- $_ := set (first $spec.bindings) "validationActions" (.policy.actions | default .category.actions | default .root.Values.actions) }}
{{- end }}
{{- with (include "ostiary-policies.excluded" (dict "field" "namespaces" "root" .root "category" .category "policy" .policy) | fromYaml).list }}
{{- $_ := set $spec.matchConstraints "namespaceSelector" (dict "matchExpressions" (list (dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" .))) }}
{{- end }}
{{- $conditions := list }}
{{- with (include "ostiary-policies.excluded" (dict "field" "users" "root" .root "category" .category "policy" .policy) | fromYaml).list }}
{{- $conditions = append $conditions (dict "name" "not-an-excluded-user" "expression" (printf "!(request.userInfo.username in %s)" (toJson .))) }}
{{- end }}
{{- range $i, $group := (include "ostiary-policies.excluded" (dict "field" "groups" "root" .root "category" .category "policy" .policy) | fromYaml).list }}
{{- $conditions = append $conditions (dict "name" (printf "not-in-excluded-group-%d" $i) "expression" (printf "!(%s in request.userInfo.groups)" (toJson $group))) }}
{{- end }}
{{- with $conditions }}
{{- $_ := set $spec "matchConditions" (concat . ($spec.matchConditions | default list)) }}
{{- end }}
{{- end }}
