package oracles

import "fmt"

// PublicTemplate is a template of Gatekeeper's public library.
type PublicTemplate struct {
	// Name is the kind and the version.
	Name, Kind string
	Object     object
}

// everyKind are the kinds of objects that cases about matching have.
func everyKind() []string {
	return []string{"Pod", "Deployment", "Service", "Namespace", "ClusterRole", "RoleBinding", "Ingress", "ConfigMap"}
}

// kindGroups are the API groups of these kinds.
func kindGroups() map[string]string {
	return map[string]string{
		"Pod": "", "Service": "", "Namespace": "", "ConfigMap": "", "Deployment": "apps", "StatefulSet": "apps",
		"ClusterRole": "rbac.authorization.k8s.io", "RoleBinding": "rbac.authorization.k8s.io",
		"Ingress": "networking.k8s.io",
	}
}

// gatekeeperNamespaces are those that requests are in.
func gatekeeperNamespaces() []object {
	namespace := func(name string, labels object) object {
		return object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name, "labels": labels}}
	}
	return []object{
		namespace("default", object{}),
		namespace("shop", object{"team": "red", "environment": "production"}),
		namespace("prod", object{"team": "blue", "environment": "production"}),
		namespace("prod-1", object{"environment": "test"}),
	}
}

// GatekeeperCase writes a case: Namespaces, and a mutator or a constraint that denies all that it matches.
func GatekeeperCase(seed, number uint64) *Case {
	a := NewAuthor(seed, number)
	c := &Case{Objects: gatekeeperNamespaces()}
	if a.chance(2) {
		a.addMutator(c)
	} else {
		a.addMatch(c)
	}
	kind, _ := c.Objects[len(c.Objects)-1]["kind"].(string)
	c.Name = fmt.Sprintf("%d %s", number, kind)
	return c
}

// PublicCase writes a case with a constraint of a template of the public library.
func PublicCase(seed, number uint64, t PublicTemplate) *Case {
	c := &Case{Objects: gatekeeperNamespaces(), Name: fmt.Sprintf("%d %s", number, t.Kind)}
	NewAuthor(seed, number).addPublic(c, t)
	return c
}

// addMatch adds a constraint that denies all that it matches.
func (a *Author) addMatch(c *Case) {
	target := object{
		"target": "admission.k8s.gatekeeper.sh",
		"code": list{object{
			"engine": "K8sNativeValidation",
			"source": object{"validations": list{object{"expression": "false", "message": "denied"}}},
		}},
	}
	if a.chance(3) {
		target["operations"] = asList(some(a, 3, "CREATE", "UPDATE", "DELETE"))
	}
	template := object{
		"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": object{"name": "denyall"},
		"spec": object{
			"crd":     object{"spec": object{"names": object{"kind": "DenyAll"}}},
			"targets": list{target},
		},
	}
	spec := object{"match": a.match()}
	a.addEnforcement(spec)
	c.Objects = append(c.Objects, template, constraintOf("DenyAll", spec))
	c.Kinds = everyKind()
}

// addEnforcement adds an enforcement action, sometimes one of each enforcement point.
func (a *Author) addEnforcement(spec object) {
	if !a.chance(4) {
		return
	}
	action := pick(a, "deny", "warn", "dryrun", "scoped")
	spec["enforcementAction"] = action
	if action != "scoped" {
		return
	}
	var scoped list
	for range 1 + a.IntN(2) {
		var points list
		for _, name := range some(a, 2, "validation.gatekeeper.sh", "audit.gatekeeper.sh", "gator.gatekeeper.sh", "*") {
			points = append(points, object{"name": name})
		}
		scoped = append(scoped, object{"action": pick(a, "deny", "warn", "dryrun"), "enforcementPoints": points})
	}
	spec["scopedEnforcementActions"] = scoped
}

func constraintOf(kind string, spec object) object {
	return object{
		"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": kind, "metadata": object{"name": "compared"},
		"spec": spec,
	}
}

func asList(texts []string) (out list) {
	for _, t := range texts {
		out = append(out, t)
	}
	return out
}

// match writes the fields that select requests, each of them sometimes.
func (a *Author) match() object {
	out := object{}
	set := func(name string, value any) {
		if a.chance(3) {
			out[name] = value
		}
	}
	namespaces := func() any {
		return asList(some(a, 2, "shop", "prod", "default", "prod-*", "*-1", "*o*", "none", "s*"))
	}
	set("kinds", a.matchedKinds())
	set("namespaces", namespaces())
	set("excludedNamespaces", namespaces())
	set("labelSelector", a.selector(list{"app", "team"}, list{"web", "red", "blue"}))
	set("namespaceSelector", a.selector(
		list{"team", "environment", "kubernetes.io/metadata.name"},
		list{"red", "production", "test", "shop", "prod"},
	))
	set("scope", pick(a, "Cluster", "Namespaced", "*"))
	set("name", pick(a, "web", "w*", "*b", "*e*", "*", "none"))
	set("source", pick(a, "Original", "All"))
	return out
}

func (a *Author) matchedKinds() (out list) {
	for range 1 + a.IntN(2) {
		kind := pick(a, everyKind()...)
		k := object{"apiGroups": list{kindGroups()[kind]}, "kinds": list{kind}}
		switch a.IntN(5) {
		case 0:
			k["kinds"] = list{"*"}
		case 1:
			k["apiGroups"] = list{"*"}
		case 2:
			delete(k, "apiGroups")
		}
		out = append(out, k)
	}
	return out
}

// selector writes a selector of labels.
func (a *Author) selector(keys, values list) object {
	out := object{}
	if a.chance(2) {
		out["matchLabels"] = object{pick(a, keys...).(string): pick(a, values...)} //nolint:forcetypeassert // it is one
	}
	if len(out) == 0 || a.chance(3) {
		operator := pick(a, "In", "NotIn", "Exists", "DoesNotExist")
		e := object{"key": pick(a, keys...), "operator": operator}
		if operator == "In" || operator == "NotIn" {
			e["values"] = some(a, 2, values...)
		}
		out["matchExpressions"] = list{e}
	}
	return out
}

// addPublic adds a constraint of a template of the public library.
func (a *Author) addPublic(c *Case, t PublicTemplate) {
	made := parametersOf(a)[t.Kind]
	if made.parameters == nil {
		made.parameters = object{}
	}
	spec := object{}
	if a.chance(4) {
		spec["match"] = a.match()
	}
	for _, name := range sortedKeys(made.parameters) {
		if a.chance(6) {
			delete(made.parameters, name)
		}
	}
	if len(made.parameters) > 0 || a.chance(2) {
		spec["parameters"] = made.parameters
	}
	c.Kinds = made.kinds
	if len(c.Kinds) == 0 {
		c.Kinds = []string{"Pod"}
	}
	if a.chance(6) {
		c.Kinds = everyKind()
	}
	c.Objects = append(c.Objects, a.inventory(t.Kind)...)
	c.Objects = append(c.Objects, t.Object, constraintOf(t.Kind, spec))
}
