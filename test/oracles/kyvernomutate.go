package oracles

// mutate returns the mutate field of a rule.
func (k *kyvernoAuthor) mutate() object {
	switch k.IntN(4) {
	case 0:
		return object{"patchesJson6902": k.jsonPatch()}
	case 1:
		if k.kind == "Pod" {
			return object{"foreach": list{k.mutateEach()}}
		}
	}
	return object{"patchStrategicMerge": k.mergePatch()}
}

// key returns a key with or without the anchor for what is absent.
func (k *kyvernoAuthor) key(name string) string {
	if k.chance(2) {
		return "+(" + name + ")"
	}
	return name
}

func (k *kyvernoAuthor) mergePatch() object {
	patches := []object{
		{"metadata": object{"labels": object{k.key("team"): k.patchText(), k.key("added"): "yes"}}},
		{"metadata": object{"annotations": object{k.key("owner"): k.patchText()}}},
	}
	switch k.kind {
	case "Pod":
		patches = append(patches, k.podPatch(), k.podPatch(), k.podPatch())
	case "Service":
		patches = append(patches,
			object{"spec": object{"selector": object{k.key("tier"): "web"}}},
			object{"spec": object{k.key("type"): "ClusterIP"}},
		)
	case "ConfigMap":
		patches = append(patches, object{"data": object{k.key("mode"): "test"}})
	}
	out := pick(k.Author, patches...)
	if k.chance(3) {
		out = asObject(merged(out, pick(k.Author, patches...)))
	}
	return out
}

func (k *kyvernoAuthor) patchText() any {
	if len(k.context) > 0 && k.chance(2) {
		return k.context[0]
	}
	return pick[any](k.Author, "red", "{{ request.object.metadata.name }}", "{{ request.namespace }}", nil)
}

func (k *kyvernoAuthor) podPatch() object {
	if k.chance(2) {
		return object{"spec": object{"containers": list{k.containerPatch()}}}
	}
	return object{"spec": pick(k.Author,
		object{k.key("hostNetwork"): false},
		object{k.key("nodeSelector"): object{"pool": "red"}},
		object{"nodeSelector": object{k.key("pool"): "red"}},
		object{k.key("serviceAccountName"): "default"},
		object{"tolerations": list{object{"key": "pool", "operator": "Exists"}}},
		object{"imagePullSecrets": list{object{"name": "registry"}}},
		object{"imagePullSecrets": list{object{"name": "other"}}},
		object{"securityContext": object{k.key("runAsNonRoot"): true, k.key("runAsUser"): 1000.0}},
		object{"volumes": list{object{"name": "extra", "emptyDir": object{}}}},
		object{"initContainers": list{object{"name": "added", "image": "added:1"}}},
		object{"(hostPID)": false, "hostIPC": false},
		object{"priorityClassName": nil},
	)}
}

func (k *kyvernoAuthor) containerPatch() object {
	out := object{pick(k.Author, "(name)", "(name)", "(image)"): pick(k.Author, "*", "w*", "web", "!web")}
	return asObject(merged(out, pick(k.Author,
		object{k.key("imagePullPolicy"): "Always"},
		object{"securityContext": object{k.key("privileged"): false}},
		object{"resources": object{"limits": object{k.key("memory"): "2Gi"}}},
		object{"env": list{object{"name": "NODE", "valueFrom": object{"fieldRef": object{"fieldPath": "spec.nodeName"}}}}},
		object{"env": list{object{"name": "MODE", "value": "test"}}},
		object{"volumeMounts": list{object{"name": "extra", "mountPath": "/extra"}}},
		object{"resources": object{k.key("requests"): object{"cpu": "50m"}}},
	)))
}

func (k *kyvernoAuthor) jsonPatch() string {
	patches := []string{
		"- {op: add, path: /metadata/labels/added, value: \"yes\"}",
		"- {op: add, path: /metadata/annotations/owner, value: \"{{ request.object.metadata.name }}\"}",
		"- {op: replace, path: /metadata/labels/app, value: red}",
		"- {op: remove, path: /metadata/labels/team}",
	}
	if k.kind == "Pod" {
		patches = append(patches,
			"- {op: add, path: /spec/containers/-, value: {name: added, image: \"added:1\"}}",
			"- {op: add, path: /spec/containers/0/imagePullPolicy, value: Always}",
			"- {op: replace, path: /spec/hostNetwork, value: false}",
			"- {op: add, path: /spec/tolerations/-, value: {key: added, operator: Exists}}",
			"- {op: remove, path: /spec/nodeSelector}",
		)
	}
	out := ""
	for _, p := range some(k.Author, 2, patches...) {
		out += p + "\n"
	}
	return out
}

func (k *kyvernoAuthor) mutateEach() object {
	field := pick(k.Author, "containers", "initContainers")
	f := object{"list": "request.object.spec." + field}
	switch k.IntN(3) {
	case 0:
		f["patchStrategicMerge"] = object{"spec": object{field: list{object{
			"name": "{{ element.name }}", "image": "registry.example.com/{{ element.image }}",
		}}}}
	case 1:
		f["patchStrategicMerge"] = object{"spec": object{field: list{object{
			"(name)": "{{ element.name }}", "securityContext": object{k.key("privileged"): false},
		}}}}
	default:
		f["patchesJson6902"] = "- {op: add, path: \"/spec/" + field + "/{{ elementIndex }}/imagePullPolicy\", value: Always}\n"
	}
	if k.chance(3) {
		f["preconditions"] = k.blocks([]any{"{{ element.image }}", "{{ element.name }}"})
	}
	return f
}
