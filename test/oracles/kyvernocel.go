package oracles

// celExpression returns a validation of Pods.
func (k *kyvernoAuthor) celExpression() string {
	return pick(k.Author,
		"object.spec.containers.all(c, !c.image.endsWith(':latest'))",
		"object.spec.containers.all(c, has(c.resources) && has(c.resources.limits))",
		"!object.spec.?hostNetwork.orValue(false)",
		"'app' in object.metadata.labels",
		"has(object.metadata.labels) && 'team' in object.metadata.labels",
		"object.metadata.?labels.?app.orValue('') != ''",
		"object.spec.containers.all(c, c.?securityContext.?privileged.orValue(false) == false)",
		"object.spec.?initContainers.orValue([]).all(c, c.image.startsWith('registry.example.com/'))",
		"!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))",
		"namespaceObject.metadata.name != 'prod'",
		"request.userInfo.username != 'alice' || object.metadata.name == 'web'",
		"oldObject == null || object.metadata.name == oldObject.metadata.name",
	)
}

// celPolicy returns a ValidatingPolicy or a MutatingPolicy.
func (k *kyvernoAuthor) celPolicy() object {
	spec := object{"matchConstraints": object{"resourceRules": list{object{
		"apiGroups": list{""}, "apiVersions": list{"v1"}, "resources": list{"pods"},
		"operations": anys(some(k.Author, 2, "CREATE", "UPDATE", "DELETE")),
	}}}}
	if k.chance(3) {
		spec["matchConditions"] = list{object{"name": "condition", "expression": k.celExpression()}}
	}
	if k.chance(3) {
		spec["failurePolicy"] = pick(k.Author, "Fail", "Ignore")
	}
	if k.chance(3) {
		spec["autogen"] = object{"podControllers": object{"controllers": anys(some(k.Author, 2, "deployments", "cronjobs"))}}
	}
	if k.chance(4) {
		spec["variables"] = list{object{"name": "images", "expression": "object.spec.containers.map(c, c.image)"}}
	}
	kind := "ValidatingPolicy"
	if k.chance(2) {
		kind = "MutatingPolicy"
		spec["mutations"] = list{k.celMutation()}
	} else {
		spec["validationActions"] = list{"Deny"}
		validations := list{object{"expression": k.celExpression(), "message": "denied"}}
		if spec["variables"] != nil {
			validations = append(validations, object{"expression": "variables.images.all(i, i != 'web')"})
		}
		spec["validations"] = validations
	}
	if k.chance(8) {
		k.objects = append(k.objects, object{
			"apiVersion": "policies.kyverno.io/v1beta1", "kind": "PolicyException",
			"metadata": object{"name": "exception", "namespace": "shop"},
			"spec": object{
				"policyRefs":      list{object{"name": "policy", "kind": kind}},
				"matchConditions": list{object{"name": "exempt", "expression": "object.metadata.name == 'bare'"}},
			},
		})
	}
	return object{
		"apiVersion": "policies.kyverno.io/v1beta1", "kind": kind, "metadata": object{"name": "policy"}, "spec": spec,
	}
}

func (k *kyvernoAuthor) celMutation() object {
	if k.chance(2) {
		return object{"patchType": "JSONPatch", "jsonPatch": object{"expression": pick(k.Author,
			`[JSONPatch{op: "add", path: "/spec/hostPID", value: false}]`,
			`has(object.metadata.labels) ? [JSONPatch{op: "add", path: "/metadata/labels/added", value: "yes"}] : [JSONPatch{op: "add", path: "/metadata/labels", value: {"added": "yes"}}]`,
			`[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "registry.example.com/" + object.spec.containers[0].image}]`,
		)}}
	}
	return object{"patchType": "ApplyConfiguration", "applyConfiguration": object{"expression": pick(k.Author,
		`Object{metadata: Object.metadata{labels: Object.metadata.labels{added: "yes"}}}`,
		`Object{spec: Object.spec{hostNetwork: false}}`,
		`Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`,
	)}}
}
