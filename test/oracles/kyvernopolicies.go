package oracles

import (
	"fmt"
)

// Case is a policy with what it needs, and what requests about it are made of.
type Case struct {
	Name string
	// Objects are the policy, its exceptions, and ConfigMaps that it reads.
	Objects []object
	// Kinds are those that requests are about.
	Kinds []string
	// Examples are the objects of requests besides those of Requests.
	Examples []object
}

// kyvernoAuthor writes policies of Kyverno.
type kyvernoAuthor struct {
	*Author
	// kind is the kind of the rule's objects.
	kind string
	// context are the names of the variables of the rule.
	context []any
	// objects are ConfigMaps and exceptions beside the policy.
	objects []object
}

// KyvernoCase returns a random policy of Kyverno.
func KyvernoCase(seed, number uint64) *Case {
	k := &kyvernoAuthor{Author: NewAuthor(seed, number)}
	c := &Case{Name: fmt.Sprintf("seed %d, number %d", seed, number)}
	k.kind = "Pod"
	if k.chance(4) {
		k.kind = pick(k.Author, "Deployment", "Service", "ConfigMap", "Namespace", "Ingress", "CronJob")
	}
	var policy object
	const everyNth = 8 // policy reads the API server
	switch {
	case number%everyNth == everyNth-1:
		policy = k.lookupPolicy()
	case k.kind == "Pod" && k.chance(6):
		policy = k.celPolicy()
	default:
		policy = k.classicPolicy()
	}
	c.Objects = append([]object{policy}, k.objects...)
	c.Kinds = []string{k.kind}
	if k.kind == "Pod" {
		c.Kinds = []string{"Pod", "Pod", "Pod", "Deployment", "CronJob", "StatefulSet"}
	}
	return c
}

func (k *kyvernoAuthor) classicPolicy() object {
	spec := object{"background": false}
	metadata := object{"name": "policy"}
	if k.chance(3) {
		spec["failurePolicy"] = pick(k.Author, "Fail", "Ignore")
	}
	if k.kind == "Pod" && k.chance(2) {
		metadata["annotations"] = object{
			"pod-policies.kyverno.io/autogen-controllers": pick(k.Author, "none", "Deployment,CronJob", "DaemonSet"),
		}
	}
	rules := list{k.rule("rule")}
	if k.chance(5) {
		rules = append(rules, k.rule("second"))
	}
	spec["rules"] = rules
	policy := object{"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": metadata, "spec": spec}
	if k.kind != "Namespace" && k.chance(10) {
		policy["kind"] = "Policy"
		metadata["namespace"] = "shop"
	}
	if k.chance(12) {
		k.objects = append(k.objects, k.exception())
	}
	return policy
}

func (k *kyvernoAuthor) exception() object {
	kinds := list{k.kind}
	if k.kind == "Pod" && k.chance(2) {
		kinds = append(kinds, "Deployment", "CronJob")
	}
	resources := object{"kinds": kinds}
	if k.chance(2) {
		resources["namespaces"] = list{pick(k.Author, "shop", "prod*", "prod")}
	}
	if resources["namespaces"] == nil || k.chance(2) {
		resources["names"] = list{pick(k.Author, "web", "b*")}
	}
	if k.chance(6) {
		resources["selector"] = k.selector()
	}
	names := list{"rule", "autogen-rule", "autogen-cronjob-rule"}
	return object{
		"apiVersion": "kyverno.io/v2",
		"kind":       "PolicyException",
		"metadata":   object{"name": "exception", "namespace": "shop"},
		"spec": object{
			"exceptions": list{object{"policyName": "policy", "ruleNames": names[:1+k.IntN(3)]}},
			"match":      object{"any": list{object{"resources": resources}}},
		},
	}
}

func (k *kyvernoAuthor) rule(name string) object {
	k.context = nil
	r := object{"name": name, "match": k.match()}
	if k.chance(4) {
		r["exclude"] = k.exclude()
	}
	if k.chance(4) {
		k.addContext(r)
	}
	if k.chance(4) {
		r["preconditions"] = k.blocks(k.requestKeys())
	}
	if k.chance(3) {
		r["mutate"] = k.mutate()
	} else {
		r["validate"] = k.validate()
	}
	return r
}

func (k *kyvernoAuthor) match() object {
	resources := object{"kinds": list{k.kind}}
	if k.chance(8) {
		resources["namespaces"] = list{pick(k.Author, "shop", "prod*", "?ev")}
	}
	if k.chance(8) {
		resources["names"] = list{pick(k.Author, "web", "w*", "?are", "*")}
	}
	if k.chance(8) {
		resources["selector"] = k.selector()
	}
	if k.chance(10) {
		resources["annotations"] = object{"owner": pick(k.Author, "red", "r*", "?*")}
	}
	if k.chance(8) {
		resources["operations"] = anys(some(k.Author, 2, "CREATE", "UPDATE", "DELETE"))
	}
	block := object{"resources": resources}
	if k.chance(12) {
		block["subjects"] = k.subjects()
	}
	return object{pick(k.Author, "any", "all"): list{block}}
}

func (k *kyvernoAuthor) subjects() list {
	return list{pick(k.Author,
		object{"kind": "User", "name": pick(k.Author, "alice", "a*", "developer")},
		object{"kind": "Group", "name": pick(k.Author, "admins", "system:masters")},
		object{"kind": "ServiceAccount", "name": "web", "namespace": "shop"},
	)}
}

func (k *kyvernoAuthor) selector() object {
	if k.chance(2) {
		return object{"matchLabels": object{"app": pick(k.Author, "web", "w*", "?*")}}
	}
	operator := pick(k.Author, "In", "NotIn", "Exists", "DoesNotExist")
	expression := object{"key": "team", "operator": operator}
	if operator == "In" || operator == "NotIn" {
		expression["values"] = list{"red", "blue"}
	}
	return object{"matchExpressions": list{expression}}
}

func (k *kyvernoAuthor) exclude() object {
	blocks := []any{
		object{"resources": object{"namespaces": list{pick(k.Author, "dev", "prod-*")}}},
		object{"resources": object{"names": list{pick(k.Author, "bare", "b*")}}},
		object{"resources": object{"selector": k.selector()}},
		object{"subjects": k.subjects()},
		object{"resources": object{"operations": list{"UPDATE"}, "kinds": list{k.kind}}},
		object{"resources": object{"kinds": list{k.kind}, "namespaces": list{"shop"}}},
	}
	return object{pick(k.Author, "any", "all"): some(k.Author, 2, blocks...)}
}

// addContext adds variables to a rule, some of which read a ConfigMap.
func (k *kyvernoAuthor) addContext(r object) {
	entries := list{
		object{"name": "app", "variable": object{
			"jmesPath": "request.object.metadata.labels.app", "default": pick[any](k.Author, "none", ""),
		}},
	}
	k.context = append(k.context, "{{ app }}")
	if k.chance(4) { // without a default
		entries = append(entries, object{"name": "team", "variable": object{"jmesPath": "request.object.metadata.labels.team"}})
		k.context = append(k.context, "{{ team }}")
	}
	if k.chance(2) {
		entries = append(entries, object{"name": "settings", "configMap": object{"name": "settings", "namespace": "shop"}})
		k.context = append(k.context, "{{ settings.data.teams }}", "{{ settings.data.team }}")
		k.objects = append(k.objects, object{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "settings", "namespace": "shop"},
			"data": object{
				"teams": pick(k.Author, `["red", "blue"]`, `["web"]`, `["r*"]`, "red"),
				"team":  pick(k.Author, "red", "web", "w*", ""),
			},
		})
	}
	r["context"] = entries
}

// anys returns a list of any values.
func anys[T any](values []T) (out list) {
	for _, v := range values {
		out = append(out, v)
	}
	return out
}
