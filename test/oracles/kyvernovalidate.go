package oracles

import "strings"

// validate returns the validate field of a rule.
func (k *kyvernoAuthor) validate() object {
	v := object{"failureAction": "Enforce", "message": "denied"}
	choices := []func(object){k.pattern, k.pattern, k.anyPattern, k.deny, k.deny, k.deny, k.forEach}
	if k.kind == "Pod" {
		choices = append(choices, k.podSecurity, k.cel)
	}
	pick(k.Author, choices...)(v)
	if v["podSecurity"] == nil && v["cel"] == nil && !k.chance(4) {
		v["allowExistingViolations"] = false
	}
	return v
}

func (k *kyvernoAuthor) pattern(v object) { v["pattern"] = k.anchored(k.patternTree(), 0) }

func (k *kyvernoAuthor) anyPattern(v object) {
	v["anyPattern"] = list{k.anchored(k.patternTree(), 0), k.anchored(k.patternTree(), 0)}
}

// patternTree returns a pattern without anchors.
func (k *kyvernoAuthor) patternTree() object {
	out := object{}
	for range 1 + k.IntN(2) {
		out = asObject(merged(out, k.onePattern()))
	}
	return out
}

func (k *kyvernoAuthor) onePattern() object {
	labels := object{"metadata": object{pick(k.Author, "labels", "annotations"): object{
		pick(k.Author, "app", "team", "owner", "mesh/*", "app.kubernetes.io/*"): k.textPattern(),
	}}}
	switch {
	case k.kind == "Service" && !k.chance(3):
		return object{"spec": pick(k.Author,
			object{"type": k.textPattern()},
			object{"ports": list{object{"port": k.numberPattern()}}},
			object{"externalIPs": list{k.textPattern()}},
		)}
	case k.kind == "Ingress" && !k.chance(3):
		return object{"spec": object{"rules": list{object{"host": k.textPattern()}}}}
	case k.kind != "Pod" || k.chance(4):
		return labels
	}
	return object{"spec": k.podPattern()}
}

func (k *kyvernoAuthor) podPattern() object {
	if k.chance(2) {
		return object{pick(k.Author, "containers", "containers", "initContainers", "ephemeralContainers"): list{k.containerPattern()}}
	}
	return pick(k.Author,
		object{"hostNetwork": k.boolPattern()},
		object{"serviceAccountName": k.textPattern()},
		object{"automountServiceAccountToken": k.boolPattern()},
		object{"securityContext": object{"runAsNonRoot": k.boolPattern()}},
		object{"securityContext": object{"runAsUser": k.numberPattern()}},
		object{"terminationGracePeriodSeconds": k.numberPattern()},
		object{"volumes": list{object{"hostPath": object{"path": k.textPattern()}}}},
		object{"volumes": list{object{"name": "*", "emptyDir": object{"sizeLimit": k.quantityPattern()}}}},
		object{"tolerations": list{object{"key": k.textPattern()}}},
		object{"nodeSelector": object{"pool": k.textPattern()}},
	)
}

func (k *kyvernoAuthor) containerPattern() object {
	out := object{}
	for range 1 + k.IntN(2) {
		out = asObject(merged(out, pick(k.Author,
			object{"image": k.imagePattern()},
			object{"name": k.textPattern()},
			object{"imagePullPolicy": k.textPattern()},
			object{"resources": object{"limits": object{"memory": k.quantityPattern()}}},
			object{"resources": object{"requests": object{"cpu": k.quantityPattern(), "memory": k.quantityPattern()}}},
			object{"securityContext": object{"privileged": k.boolPattern()}},
			object{"securityContext": object{"readOnlyRootFilesystem": k.boolPattern()}},
			object{"securityContext": object{"capabilities": object{"drop": list{k.textPattern()}}}},
			object{"ports": list{object{"hostPort": k.numberPattern()}}},
			object{"livenessProbe": object{"periodSeconds": k.numberPattern()}},
			object{"env": list{object{"name": k.textPattern()}}},
			object{"volumeMounts": list{object{"readOnly": k.boolPattern()}}},
		)))
	}
	return out
}

func (k *kyvernoAuthor) textPattern() any {
	return pick[any](k.Author, "web", "?*", "*", "!web", "w* | red", "!w* & !red", "red|blue", "production", "!*latest", "", "*e*", nil)
}

func (k *kyvernoAuthor) imagePattern() any {
	return pick[any](k.Author, "!*:latest", "*:*", "registry.example.com/*", "registry.example.com/* | docker.io/*",
		"!*:latest & *:*", "*@sha256:*")
}

func (k *kyvernoAuthor) numberPattern() any {
	return pick[any](k.Author, ">0", "<=1000", "1000", 1000.0, ">=10 & <100", "10-3000", "!80", "0", 0.0, "!10-100", "?*", "<80 | >1000")
}

func (k *kyvernoAuthor) quantityPattern() any {
	return pick[any](k.Author, "?*", "<=1Gi", ">100m", "128Mi", "100Mi-2Gi", "!1Gi", "1", ">=0.1", "*")
}

func (k *kyvernoAuthor) boolPattern() any {
	return pick[any](k.Author, true, false, "true", "false", "!true", "?*", nil)
}

// anchored adds anchors to the keys of a pattern.
func (k *kyvernoAuthor) anchored(value any, depth int) any {
	switch v := value.(type) {
	case object:
		out := object{}
		for _, key := range sortedKeys(v) {
			child := v[key]
			if k.chance(4) && depth > 0 {
				key, child = k.anchor(key, child)
			}
			out[key] = k.anchored(child, depth+1)
		}
		return out
	case list:
		out := list{}
		for _, item := range v {
			out = append(out, k.anchored(item, depth+1))
		}
		return out
	}
	return value
}

// anchor returns a key with an anchor.
func (k *kyvernoAuthor) anchor(key string, child any) (string, any) {
	_, isList := child.(list)
	_, isObject := child.(object)
	switch {
	case isList && k.chance(3):
		return "^(" + key + ")", child
	case isList || isObject:
		return "=(" + key + ")", child
	}
	switch k.IntN(8) {
	case 0, 1:
		return "X(" + key + ")", "null"
	case 2, 3:
		return "<(" + key + ")", child
	case 4:
		return "(" + key + ")", child
	}
	return "=(" + key + ")", child
}

func (k *kyvernoAuthor) deny(v object) { v["deny"] = object{"conditions": k.blocks(k.requestKeys())} }

// blocks returns conditions as any and all.
func (k *kyvernoAuthor) blocks(keys []any) object {
	out := object{}
	for _, name := range some(k.Author, 2, "any", "all") {
		var conditions list
		for range 1 + k.IntN(2) {
			conditions = append(conditions, k.condition(keys))
		}
		out[name] = conditions
	}
	return out
}

func (k *kyvernoAuthor) condition(keys []any) object {
	operator := pick(k.Author, "Equals", "NotEquals", "In", "NotIn", "AnyIn", "AllIn", "AnyNotIn", "AllNotIn",
		"GreaterThan", "GreaterThanOrEquals", "LessThan", "LessThanOrEquals")
	c := object{"key": pick(k.Author, keys...), "operator": operator}
	switch {
	case strings.HasSuffix(operator, "Than") || strings.HasSuffix(operator, "ThanOrEquals"):
		c["value"] = pick[any](k.Author, 0.0, 2.0, "1Gi", "10", 1000.0, "1h")
	case strings.HasSuffix(operator, "In"):
		c["value"] = pick[any](k.Author, list{"red", "blue"}, list{"web"}, list{"w*", "--debug*"}, list{},
			list{"ALL", "NET_ADMIN"}, "web", "10-100")
	default:
		c["value"] = pick[any](k.Author, "web", "w*", "", "red", true, 0.0, 2.0, "1Gi", list{}, list{"web"}, "UPDATE", nil)
	}
	if len(k.context) > 0 && k.chance(3) {
		c["value"] = pick(k.Author, k.context...)
	}
	if c["value"] == nil {
		delete(c, "value")
	}
	return c
}

// requestKeys returns the keys of conditions about the request.
func (k *kyvernoAuthor) requestKeys() []any {
	keys := []any{
		"{{ request.operation }}",
		"{{ request.object.metadata.name }}",
		"{{ request.namespace }}",
		"{{ request.userInfo.username }}",
		"{{ request.object.metadata.labels.app || '' }}",
		"{{ request.object.metadata.labels.team || 'none' }}",
		"{{ request.object.metadata.labels.team }}",
		"{{ request.object.metadata.annotations.owner || '' }}",
		"{{ request.object.metadata.annotations.keys(@)[?starts_with(@, 'mesh/')] }}",
		"{{ request.object.metadata.labels | length(@) }}",
		"{{ request.oldObject.metadata.labels.app || '' }}",
		"{{ to_upper(request.object.metadata.labels.app || '') }}",
		"{{ split(request.object.metadata.name, '-') }}",
		"{{ request.object.metadata.labels.app == request.oldObject.metadata.labels.app }}",
		"{{ regex_match('^w.*$', request.object.metadata.name) }}",
	}
	keys = append(keys, k.context...)
	if k.kind != "Pod" {
		return keys
	}
	return append(keys,
		"{{ request.object.spec.containers[].image }}",
		"{{ request.object.spec.containers[0].image }}",
		"{{ request.object.spec.containers[*].name }}",
		"{{ request.object.spec.[containers, initContainers, ephemeralContainers][].image }}",
		"{{ request.object.spec.containers[].securityContext.capabilities.add[] }}",
		"{{ request.object.spec.initContainers[].securityContext.capabilities.drop[] || `[]` }}",
		"{{ request.object.spec.containers[?securityContext.privileged].name }}",
		"{{ request.object.spec.containers[?name=='web'].args[] }}",
		"{{ length(request.object.spec.containers) }}",
		"{{ request.object.spec.volumes[].hostPath.path }}",
		"{{ request.object.spec.hostNetwork || `false` }}",
		"{{ request.object.spec.terminationGracePeriodSeconds || `0` }}",
		"{{ request.object.spec.containers[0].resources.limits.memory || '0' }}",
		"{{ request.object.spec.tolerations[].key | sort(@) }}",
		"{{ sum(request.object.spec.containers[].ports[].containerPort) }}",
		"{{ not_null(request.object.spec.priorityClassName, 'none') }}",
	)
}

// forEach returns the validate field with foreach.
func (k *kyvernoAuthor) forEach(v object) {
	f := object{"list": pick(k.Author, "request.object.metadata.labels.keys(@)", "request.object.metadata.annotations.values(@)")}
	keys := []any{"{{ element }}"}
	if k.kind == "Pod" {
		f["list"] = pick(k.Author,
			"request.object.spec.containers",
			"request.object.spec.initContainers",
			"request.object.spec.[initContainers, containers, ephemeralContainers][]",
			"request.object.spec.volumes[?hostPath]",
			"request.object.spec.containers[?securityContext.privileged]",
		)
		keys = []any{
			"{{ element.image }}",
			"{{ element.name }}",
			"{{ element.securityContext.privileged || `false` }}",
			"{{ element.args[] || `[]` }}",
			"{{ element.securityContext.capabilities.add || `[]` }}",
			"{{ element.resources.limits.memory || '0' }}",
			"{{ element.hostPath.path || '' }}",
		}
	}
	if k.chance(4) {
		f["preconditions"] = k.blocks(keys)
	}
	isContainers := strings.Contains(f["list"].(string), "ontainers") && k.kind == "Pod"
	if isContainers && k.chance(3) {
		f["pattern"] = k.anchored(k.containerPattern(), 0)
	} else {
		f["deny"] = object{"conditions": k.blocks(keys)}
	}
	v["foreach"] = list{f}
}

func (k *kyvernoAuthor) podSecurity(v object) {
	s := object{"level": pick(k.Author, "baseline", "restricted"), "version": "latest"}
	if k.chance(6) {
		s["exclude"] = list{object{"controlName": "Capabilities", "images": list{"*"}}}
	}
	v["podSecurity"] = s
}

func (k *kyvernoAuthor) cel(v object) {
	v["cel"] = object{"expressions": list{object{"expression": k.celExpression(), "message": "denied"}}}
}
