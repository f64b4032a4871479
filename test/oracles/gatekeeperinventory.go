package oracles

import "fmt"

// inventoryParameters writes parameters for the templates of Gatekeeper's public library that read other objects.
func inventoryParameters(a *Author) map[string]publicParameters {
	return map[string]publicParameters{
		"K8sUniqueIngressHost":     {kinds: []string{"Ingress"}},
		"K8sUniqueServiceSelector": {kinds: []string{"Service"}},
		"K8sPodDisruptionBudget":   {kinds: []string{"Deployment", "StatefulSet", "PodDisruptionBudget", "Service", "Pod"}},
		"K8sStorageClass": {
			parameters: object{"allowedStorageClasses": asList(some(a, 2, "fast", "slow", "none", "*"))},
			kinds:      []string{"PersistentVolumeClaim", "StatefulSet", "StorageClass"},
		},
	}
}

// inventory writes stored objects for a template that reads other objects.
func (a *Author) inventory(kind string) (out []object) {
	makers := map[string]func() object{
		"K8sUniqueIngressHost": func() object {
			host := pick(a, "web.example.com", "shop.example.com", "*.example.com", "web", "red")
			return object{
				"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
				"spec": object{"rules": list{object{"host": host}, object{}}},
			}
		},
		"K8sUniqueServiceSelector": func() object {
			spec := object{"selector": pick(a, object{"app": "web"}, object{"app": "red", "team": "blue"}, object{"team": "red"})}
			if a.chance(6) {
				spec = object{}
			}
			return object{"apiVersion": "v1", "kind": "Service", "spec": spec}
		},
		"K8sPodDisruptionBudget": a.storedBudget,
		"K8sHorizontalPodAutoscaler": func() object {
			return object{
				"apiVersion": "apps/v1", "kind": pick(a, "Deployment", "StatefulSet"),
				"metadata": object{"name": pick(a, "web", "red", "none"), "namespace": pick(a, "shop", "prod", "default")},
			}
		},
		"K8sStorageClass": func() object {
			return object{
				"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": object{"name": pick(a, "fast", "slow", "web")},
			}
		},
	}
	made, ok := makers[kind]
	if !ok {
		return nil
	}
	names := map[string]bool{}
	for i := range a.IntN(5) {
		o := made()
		metadata, _ := o["metadata"].(object)
		if metadata == nil {
			metadata = object{
				"name":      fmt.Sprintf("stored-%d", i),
				"namespace": pick(a, "shop", "shop", "default", "prod", "prod-1"),
			}
			o["metadata"] = metadata
		}
		metadata["uid"] = fmt.Sprintf("uid-%d", i)
		if name := fmt.Sprint(o["kind"], metadata["namespace"], metadata["name"]); !names[name] {
			names[name] = true
			out = append(out, o)
		}
	}
	return out
}

func (a *Author) storedBudget() object {
	spec := object{}
	if !a.chance(5) {
		spec["selector"] = object{"matchLabels": pick(a, object{"app": "web"}, object{"app": "web", "team": "red"}, object{"app": "red"})}
	}
	amount := pick[any](a, 0, 1, 2, 3, "50%", "0%")
	if a.chance(2) {
		spec["maxUnavailable"] = amount
	} else {
		spec["minAvailable"] = amount
	}
	return object{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": spec}
}
