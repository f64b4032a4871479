package oracles

import (
	"fmt"
	"strings"
)

// addMutator adds a mutator for Pods or other objects.
func (a *Author) addMutator(c *Case) {
	kind := pick(a, "Pod", "Pod", "Pod", "Deployment", "Service", "Namespace")
	spec := object{"match": a.match()}
	delete(spec["match"].(object), "kinds") //nolint:forcetypeassert // it is one
	if a.chance(4) {
		c.Objects, c.Kinds = append(c.Objects, a.metadataMutator(spec)), everyKind()
		return
	}
	spec["applyTo"] = list{object{
		"groups": list{kindGroups()[kind]}, "versions": list{"v1"}, "kinds": list{kind},
	}}
	if a.chance(4) {
		spec["applyTo"].(list)[0].(object)["operations"] = list{pick(a, "CREATE", "UPDATE", "*")} //nolint:forcetypeassert // it is one
	}
	made := "Assign"
	switch n := a.IntN(4); {
	case n == 0 && kind == "Pod":
		made = "AssignImage"
		spec["location"] = a.podLocation("image")
		spec["parameters"] = a.imageParts()
	case n == 1 && (kind == "Pod" || kind == "Deployment"):
		made = "ModifySet"
		spec["location"] = a.podLocation("args")
		if kind == "Deployment" {
			spec["location"] = "spec.template." + a.podLocation("args")
		}
		spec["parameters"] = object{
			"operation": pick(a, "merge", "prune"),
			"values":    object{"fromList": asList(some(a, 3, "--debug", "--port=80", "--new"))},
		}
	default:
		location, value := a.assignment(kind)
		spec["location"], spec["parameters"] = location, object{"assign": object{"value": value}}
	}
	a.pathTests(spec)
	c.Objects = append(c.Objects, mutatorOf(made, spec))
	c.Kinds = []string{kind, pick(a, everyKind()...)}
}

func mutatorOf(kind string, spec object) object {
	version := "v1"
	if kind == "AssignImage" {
		version = "v1alpha1"
	}
	return object{
		"apiVersion": "mutations.gatekeeper.sh/" + version, "kind": kind, "metadata": object{"name": "compared"},
		"spec": spec,
	}
}

// metadataMutator adds a label or an annotation.
func (a *Author) metadataMutator(spec object) object {
	field := pick(a, "labels", "annotations")
	spec["location"] = fmt.Sprintf(`metadata.%s.%s`, field, pick(a, "owner", "app", "team", `"example.com/team"`, "new"))
	assign := object{"value": pick(a, "red", "blue", "true")}
	if a.chance(4) {
		assign = object{"fromMetadata": object{"field": pick(a, "name", "namespace")}}
	}
	spec["parameters"] = object{"assign": assign}
	return mutatorOf("AssignMetadata", spec)
}

// podLocation is a field of containers.
func (a *Author) podLocation(field string) string {
	containers := pick(a, "containers", "containers", "initContainers", "ephemeralContainers")
	return fmt.Sprintf("spec.%s[name: %s].%s", containers, pick(a, "*", "*", "web", "setup", "new"), field)
}

func (a *Author) imageParts() object {
	out := object{}
	for _, part := range [][2]string{
		{"assignDomain", "mirror.example.com"},
		{"assignPath", "team/app"},
		{"assignTag", pick(a, ":v1", "@sha256:"+strings.Repeat("ab", 32))},
	} {
		if a.chance(2) {
			out[part[0]] = part[1]
		}
	}
	if len(out) == 0 {
		out["assignTag"] = ":v1"
	}
	return out
}

// assignment is a location of a kind and a value for it.
func (a *Author) assignment(kind string) (location string, value any) {
	pod := map[string][]any{
		"spec.hostNetwork":                                            {true, false},
		"spec.priorityClassName":                                      {"low"},
		"spec.nodeSelector.pool":                                      {"web", "other"},
		"spec.securityContext.runAsUser":                              {1000, 2000},
		"spec.securityContext.seccompProfile.type":                    {"RuntimeDefault"},
		"spec.dnsConfig.options":                                      {list{object{"name": "ndots"}}},
		"spec.tolerations":                                            {list{object{"key": "a", "operator": "Exists"}}},
		"spec.terminationGracePeriodSeconds":                          {10},
		a.podLocation("imagePullPolicy"):                              {"Always", "Never"},
		a.podLocation("securityContext.privileged"):                   {false},
		a.podLocation("resources.limits"):                             {object{"cpu": "1"}},
		a.podLocation("securityContext.capabilities.drop"):            {list{"ALL"}},
		a.podLocation(`env[name: MODE].value`):                        {"test"},
		`spec.volumes[name: data].emptyDir.medium`:                    {"Memory"},
		`spec.containers[name: sidecar]`:                              {object{"name": "sidecar", "image": "sidecar:1"}},
		`spec.containers[name: web].ports[containerPort:80].protocol`: {"UDP"},
	}
	of := map[string]map[string][]any{
		"Pod": pod,
		"Deployment": {
			"spec.replicas":                                     {1, 5},
			"spec.paused":                                       {true},
			"spec.strategy.type":                                {"Recreate"},
			"spec.template.spec.hostPID":                        {false},
			"spec.template.spec.nodeSelector.x":                 {"y"},
			"spec.template." + a.podLocation("imagePullPolicy"): {"Always"},
		},
		"Service": {
			"spec.externalTrafficPolicy": {"Local"},
			"spec.selector.app":          {"other"},
			"spec.ports[port: 80].name":  {"web"},
		},
		"Namespace": {"spec.finalizers": {list{"kubernetes"}}},
	}[kind]
	location = pick(a, sortedKeys(of)...)
	return location, pick(a, of[location]...)
}

// pathTests adds a test of a part of the location.
func (a *Author) pathTests(spec object) {
	if !a.chance(3) {
		return
	}
	location, _ := spec["location"].(string)
	parameters, _ := spec["parameters"].(object)
	ends := []int{len(location)}
	for i, r := range location {
		if r == '.' {
			ends = append(ends, i)
		}
	}
	parameters["pathTests"] = list{object{
		"subPath": location[:pick(a, ends...)], "condition": pick(a, "MustExist", "MustNotExist"),
	}}
}
