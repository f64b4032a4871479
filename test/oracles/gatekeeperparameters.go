package oracles

// publicParameters are parameters of a template, and the kinds of objects that it is about.
type publicParameters struct {
	parameters object
	kinds      []string
}

// parametersOf writes parameters for the templates of Gatekeeper's public library, by their kinds.
func parametersOf(a *Author) map[string]publicParameters {
	images := func() list {
		return asList(some(a, 3, "registry.example.com/", "docker.io", "nginx", "web", "nginx*", "docker.io/*", "*", ""))
	}
	amount := func() any {
		return pick(a, "1", "100m", "500m", "1.5", "2", "1Gi", "128Mi", "1e3", "1500M", "2.1M", "0.1", "x", "")
	}
	out := map[string]publicParameters{}
	for _, byKind := range []map[string]publicParameters{
		imageParameters(a, images),
		resourceParameters(a, images, amount),
		podParameters(a, images),
		objectParameters(a),
		inventoryParameters(a),
	} {
		for kind, p := range byKind {
			out[kind] = p
		}
	}
	return out
}

func imageParameters(a *Author, images func() list) map[string]publicParameters {
	return map[string]publicParameters{
		"K8sAllowedRepos":    {parameters: object{"repos": images()}},
		"K8sDisallowedRepos": {parameters: object{"repos": images()}},
		"K8sAllowedReposv2":  {parameters: object{"allowedImages": images()}},
		"K8sDisallowedTags": {
			parameters: object{"tags": asList(some(a, 2, "latest", "1", "25", "")), "exemptImages": images()},
		},
		"K8sImageDigests":           {parameters: object{"exemptImages": images()}},
		"K8sDisallowInteractiveTTY": {parameters: object{"exemptImages": images()}},
	}
}

func resourceParameters(a *Author, images func() list, amount func() any) map[string]publicParameters {
	resources := func() list { return asList(some(a, 2, "cpu", "memory", "ephemeral-storage")) }
	ratio := func() any { return pick(a, "1", "2", "6", "8", "1.5", "1.3", "x") }
	return map[string]publicParameters{
		"K8sContainerLimits": {
			parameters: object{"cpu": amount(), "memory": amount(), "exemptImages": images()},
		},
		"K8sContainerRequests": {
			parameters: object{"cpu": amount(), "memory": amount(), "exemptImages": images()},
		},
		"K8sContainerRatios": {
			parameters: object{"ratio": ratio(), "cpuRatio": ratio(), "exemptImages": images()},
		},
		"K8sContainerEphemeralStorageLimit": {
			parameters: object{"ephemeral-storage": amount(), "exemptImages": images()},
		},
		"K8sRequiredResources": {
			parameters: object{"limits": resources(), "requests": resources(), "exemptImages": images()},
		},
	}
}

func podParameters(a *Author, images func() list) map[string]publicParameters {
	return map[string]publicParameters{
		"K8sPSPAutomountServiceAccountTokenPod": {},
		"K8sRequiredProbes": {parameters: object{
			"probes":     asList(some(a, 3, "livenessProbe", "readinessProbe", "startupProbe")),
			"probeTypes": asList(some(a, 3, "tcpSocket", "httpGet", "exec")),
		}},
		"K8sPSPFSGroup": {parameters: object{
			"rule": pick(a, "MustRunAs", "MayRunAs", "RunAsAny", "none"), "ranges": a.ranges("min", "max", 3000),
		}},
		"K8sPSPAppArmor": {parameters: object{
			"allowedProfiles": asList(some(a, 3, "runtime/default", "unconfined", "localhost/web", "")),
			"exemptImages":    images(),
		}},
		"K8sPSPAllowedUsers": {parameters: object{
			"runAsUser": object{
				"rule": pick(a, "MustRunAs", "MustRunAsNonRoot", "RunAsAny"), "ranges": a.ranges("min", "max", 3000),
			},
			"runAsGroup":         object{"rule": pick(a, "MustRunAs", "MayRunAs", "RunAsAny"), "ranges": a.ranges("min", "max", 3000)},
			"supplementalGroups": object{"rule": pick(a, "MustRunAs", "MayRunAs", "RunAsAny"), "ranges": a.ranges("min", "max", 300)},
			"fsGroup":            object{"rule": pick(a, "MustRunAs", "MayRunAs", "RunAsAny"), "ranges": a.ranges("min", "max", 3000)},
			"exemptImages":       images(),
		}},
	}
}

func objectParameters(a *Author) map[string]publicParameters {
	workloadKinds := []string{"Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController"}
	required := func() list {
		return list{
			object{"key": pick(a, "owner", "app", "team", "none"), "allowedRegex": pick(a, "^web$", "r.d", "", "[0-9]+")},
			object{"key": pick(a, "owner", "app", "team")},
		}[:1+a.IntN(2)]
	}
	return map[string]publicParameters{
		"K8sBlockEndpointEditDefaultRole": {kinds: []string{"ClusterRole"}},
		"K8sBlockLoadBalancer":            {kinds: []string{"Service"}},
		"K8sBlockNodePort":                {kinds: []string{"Service"}},
		"K8sBlockWildcardIngress":         {kinds: []string{"Ingress"}},
		"K8sHttpsOnly":                    {parameters: object{"tlsOptional": a.chance(2)}, kinds: []string{"Ingress"}},
		"K8sExternalIPs": {
			parameters: object{"allowedIPs": asList(some(a, 2, "10.0.0.1", "10.0.0.2"))}, kinds: []string{"Service"},
		},
		"K8sDisallowAnonymous": {
			parameters: object{
				"allowedRoles": asList(some(a, 2, "web", "view", "none")), "disallowAuthenticated": a.chance(2),
			},
			kinds: []string{"ClusterRoleBinding", "RoleBinding"},
		},
		"NoUpdateServiceAccount": {
			parameters: object{
				"allowedGroups": asList(some(a, 2, "admins", "developers")), "allowedUsers": asList(some(a, 2, "alice", "bob")),
			},
			kinds: workloadKinds,
		},
		"K8sReplicaLimits": {
			parameters: object{"ranges": a.ranges("min_replicas", "max_replicas", 6)},
			kinds:      []string{"Deployment", "StatefulSet", "ReplicaSet"},
		},
		"K8sHorizontalPodAutoscaler": {
			parameters: object{
				"ranges": a.ranges("min_replicas", "max_replicas", 8), "minimumReplicaSpread": a.IntN(5),
				"enforceScaleTargetRef": a.chance(2),
			},
			kinds: []string{"HorizontalPodAutoscaler"},
		},
		"K8sRequiredAnnotations": {parameters: object{"annotations": required()}, kinds: everyKind()},
		"K8sRequiredLabels":      {parameters: object{"labels": required()}, kinds: everyKind()},
		"VerifyDeprecatedAPI": {
			parameters: object{
				"k8sVersion": 1.16,
				"kvs": list{object{
					"deprecatedAPI": pick(a, "v1", "apps/v1", "networking.k8s.io/v1"),
					"kinds":         asList(some(a, 3, "Pod", "Deployment", "Ingress", "Service")), "targetAPI": pick(a, "v2", "None"),
				}},
			},
			kinds: everyKind(),
		},
	}
}

// ranges writes ranges of numbers up to a maximum.
func (a *Author) ranges(low, high string, maximum int) (out list) {
	for range a.IntN(3) {
		from := a.IntN(maximum)
		r := object{low: from, high: from + a.IntN(maximum)}
		if a.chance(8) {
			delete(r, pick(a, low, high))
		}
		out = append(out, r)
	}
	return out
}
