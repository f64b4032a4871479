package oracles

import "fmt"

// apiCall is what a policy reads of the API server.
type apiCall struct {
	path, jmesPath string
	isList         bool // of objects
}

// lookupPolicy returns a policy that reads objects of the API server.
func (k *kyvernoAuthor) lookupPolicy() object {
	k.storeObjects()
	calls := list{}
	var names []string
	for i, c := range some(k.Author, 2, k.apiCalls()...) {
		name := fmt.Sprintf("found%d", i)
		names = append(names, name)
		call := object{"urlPath": c.path, "jmesPath": c.jmesPath}
		if k.chance(5) && !c.isList {
			call["default"] = pick(k.Author, "none", "red")
		}
		calls = append(calls, object{"name": name, "apiCall": call})
	}
	if k.chance(4) {
		calls = append(calls, object{"name": "count", "globalReference": object{"name": "services", "jmesPath": pick(k.Author,
			"length(@)", "[?spec.type == 'LoadBalancer'] | length(@)", "[?metadata.namespace == '{{ request.namespace }}'].metadata.name",
		)}})
		names = append(names, "count")
		k.objects = append(k.objects, object{
			"apiVersion": "kyverno.io/v2", "kind": "GlobalContextEntry", "metadata": object{"name": "services"},
			"spec": object{"kubernetesResource": object{"version": "v1", "resource": "services"}},
		})
	}
	conditions := list{}
	for _, name := range names {
		conditions = append(conditions, k.lookupCondition("{{ "+name+" }}"))
	}
	// The stored object of the request is left out by lookups, which the report says.
	resources := object{"kinds": list{k.kind}, "operations": list{"CREATE"}}
	rule := object{
		"name": "rule", "match": object{"any": list{object{"resources": resources}}}, "context": calls,
		"validate": object{
			"failureAction": "Enforce", "message": "denied", "allowExistingViolations": false,
			"deny": object{"conditions": object{pick(k.Author, "any", "all"): conditions}},
		},
	}
	if k.chance(3) {
		rule["preconditions"] = object{"all": list{k.lookupCondition("{{ " + names[0] + " }}")}}
	}
	return object{
		"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
		"metadata": object{"name": "policy", "annotations": object{"pod-policies.kyverno.io/autogen-controllers": "none"}},
		"spec":     object{"background": false, "rules": list{rule}},
	}
}

func (k *kyvernoAuthor) lookupCondition(variable string) object {
	if k.chance(2) {
		return object{"key": pick(k.Author, k.requestKeys()[1:8]...), "operator": pick(k.Author,
			"AnyIn", "AnyNotIn", "AllIn", "AllNotIn", "Equals", "NotEquals"), "value": variable}
	}
	c := k.condition([]any{variable})
	c["key"] = variable
	return c
}

func (k *kyvernoAuthor) apiCalls() []apiCall {
	const own = "/api/v1/namespaces/{{ request.namespace }}"
	return []apiCall{
		{own + "/services", "items | length(@)", true},
		{"/api/v1/services", "items[].metadata.name", true},
		{own + "/services", "items[?spec.selector.app == '{{ request.object.metadata.labels.app }}'].metadata.name", true},
		{own + "/services", "items[?label_match(spec.selector, `{{ request.object.metadata.labels }}`)] | length(@)", true},
		{"/api/v1/services", "items[?spec.type == 'LoadBalancer' && metadata.namespace != 'prod'].metadata.name", true},
		{own + "/services", "items[?spec.selector.app == 'web'] | [0] | metadata.labels.team || 'none'", true},
		{own + "/configmaps/stored-a", "data.team", false},
		{own + "/configmaps/stored-{{ request.object.metadata.labels.app }}", "data.team || 'none'", false},
		{"/api/v1/namespaces/shop/configmaps", "items[].data.team", true},
		{"/api/v1/namespaces/{{ request.object.metadata.labels.team }}/configmaps", "items[*].data.mode", true},
		{own, "metadata.labels.team || 'none'", false},
		{own, "metadata.labels.\"kubernetes.io/metadata.name\"", false},
		{"/apis/networking.k8s.io/v1/ingresses", "items[].spec.rules[].host", true},
		{"/apis/networking.k8s.io/v1" + own[len("/api/v1"):] + "/ingresses", "items[].spec.rules[].http.paths[].path || `[]`", true},
	}
}

// storeObjects adds objects that policies read.
func (k *kyvernoAuthor) storeObjects() {
	for i := range 2 + k.IntN(5) {
		metadata := object{
			"name": fmt.Sprintf("stored-%c", 'a'+rune(i)), "namespace": pick(k.Author, "shop", "shop", "default", "prod"),
			"uid": fmt.Sprintf("uid-%d", i),
		}
		if k.chance(2) {
			metadata["labels"] = object{"app": pick(k.Author, "web", "red"), "team": pick(k.Author, "red", "blue")}
		}
		o := object{"apiVersion": "v1", "metadata": metadata}
		switch k.IntN(3) {
		case 0:
			o["kind"] = "Service"
			spec := object{}
			if k.chance(2) {
				spec["type"] = "LoadBalancer"
			}
			if !k.chance(3) {
				spec["selector"] = object{"app": pick(k.Author, "web", "red")}
			}
			o["spec"] = spec
		case 1:
			o["kind"] = "ConfigMap"
			o["data"] = pick(k.Author, object{"team": "red", "mode": "web"}, object{"team": "web"}, object{"mode": "red"})
		default:
			o["apiVersion"], o["kind"] = "networking.k8s.io/v1", "Ingress"
			o["spec"] = object{"rules": list{object{
				"host": pick(k.Author, "web", "red", "shop.example.com"),
				"http": object{"paths": list{object{"path": pick(k.Author, "/", "/web"), "pathType": "Prefix"}}},
			}}}
		}
		k.objects = append(k.objects, o)
	}
}
