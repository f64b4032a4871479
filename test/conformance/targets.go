package conformance

import (
	"encoding/json"
	"net/http"
)

// target is a kind that generated policies are for, with requests for it and
// what expressions find in it.
type target struct {
	group, resource string
	versions        []string
	subresources    []string
	cluster         bool
	stored          string // the name of the object that is there
	texts           []string
	numbers         []string
	truths          []string
	patches         []string // JSONPatch operations
	applies         []string // ApplyConfigurations
	requests        []Request
}

func targets() []target {
	return []target{pods(), pods(), deployments(), configMaps(), widgets(), widgets(), blobs(), scalers(), zones(), clusterRoles()}
}

func post(path, body string) Request {
	return Request{Method: http.MethodPost, Path: path, Body: json.RawMessage(body)}
}

func put(path, body string) Request {
	return Request{Method: http.MethodPut, Path: path, Body: json.RawMessage(body)}
}

func merge(path, body string) Request {
	return Request{Method: http.MethodPatch, Path: path, Type: "application/merge-patch+json", Body: json.RawMessage(body)}
}

func apply(path, body string) Request {
	return Request{
		Method: http.MethodPatch,
		Path:   path + "?fieldManager=conformance&force=true",
		Type:   "application/apply-patch+yaml",
		Body:   json.RawMessage(body),
	}
}

func remove(path string) Request { return Request{Method: http.MethodDelete, Path: path} }

func pods() target {
	const all = "/api/v1/namespaces/{ns}/pods"
	const one = all + "/web"
	return target{
		resource: "pods", versions: []string{"v1"}, subresources: []string{"status", "ephemeralcontainers", "exec", "eviction"}, stored: "web",
		texts: []string{
			"string(object.spec.containers[0].image)", "string(object.spec.containers[0].resources.limits.cpu)",
			"object.spec.containers.map(c, c.name).join(',')", "string(object.spec.containers[7].name)",
			"string(object.command[0])",
		},
		numbers: []string{
			"object.spec.containers.size()", "int(object.spec.terminationGracePeriodSeconds)",
			"int(object.spec.containers[0].ports[0].containerPort)", "object.spec.containers.filter(c, has(c.ports)).size()",
		},
		truths: []string{
			"object.spec.containers.all(c, c.image.startsWith('registry.test/'))",
			"object.spec.containers.exists_one(c, c.name == 'app')", "has(object.spec.hostNetwork)",
			"has(object.spec.securityContext)", "object.spec.containers.exists(i, c, i == 1 && c.name == 'side')", "object.stdin",
			"object.spec.containers.all(c, has(c.resources.limits) && quantity(c.resources.limits.cpu).isLessThan(quantity('1')))",
		},
		patches: []string{
			`JSONPatch{op: "add", path: "/spec/containers/0/env", value: [{"name": "E", "value": "1"}]}`,
			`JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "registry.test/patched:1"}`,
			`JSONPatch{op: "add", path: "/spec/terminationGracePeriodSeconds", value: 7}`, `JSONPatch{op: "remove", path: "/spec/containers/1"}`,
			`JSONPatch{op: "add", path: "/spec/tolerations/-", value: Object.spec.tolerations{key: "k", operator: "Exists"}}`,
		},
		applies: []string{
			`Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`,
			`Object{spec: Object.spec{containers: [Object.spec.containers{name: "added", image: "registry.test/added:1"}]}}`,
			`Object{spec: Object.spec{terminationGracePeriodSeconds: 9, securityContext: Object.spec.securityContext{runAsNonRoot: true}}}`,
			`Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: "a"}]}}`,
			`Object{spec: Object.spec{containers: [Object.spec.containers{name: "app", args: ["x"]}]}}`,
			`Object{spec: Object.spec{nodeSelector: {"pool": "general"}}}`,
		},
		requests: []Request{
			post(all, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"made","labels":{"team":"shop"}},"spec":{"containers":[{"name":"app","image":"registry.test/app:1","resources":{"limits":{"cpu":"2"}}}]}}`),
			post(all, `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"made-"},"spec":{"hostNetwork":true,"containers":[{"name":"app","image":"elsewhere.test/app"},{"name":"side","image":"registry.test/side","ports":[{"containerPort":80}]}],"terminationGracePeriodSeconds":3}}`),
			post(all+"?fieldManager=me", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"made","labels":{"team":"search","app":"x"},"annotations":{"a":"b"}},"spec":{"containers":[{"name":"app","image":"registry.test/app:1","env":[{"name":"A","value":"1"}]}]}}`),
			merge(one, `{"metadata":{"labels":{"team":"search"}}}`), merge(one, `{"metadata":{"labels":{"team":null},"annotations":null}}`),
			apply(one, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","labels":{"applied":"yes"}}}`),
			merge(one+"/status", `{"status":{"message":"said"}}`), remove(one),
			merge(one+"/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"debug","image":"registry.test/debug"}]}}`),
			post(one+"/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"web","namespace":"{ns}"}}`),
			post(one+"/exec?command=sh&stdin=true&stdout=true&container=app", ""),
		},
	}
}

func deployments() target {
	const all = "/apis/apps/v1/namespaces/{ns}/deployments"
	const one = all + "/shop"
	return target{
		group: "apps", resource: "deployments", versions: []string{"v1"}, subresources: []string{"scale", "status"}, stored: "shop",
		texts: []string{
			"string(object.spec.template.spec.containers[0].image)", "string(object.spec.strategy.type)",
			"string(object.spec.strategy.rollingUpdate.maxSurge)",
		},
		numbers: []string{
			"int(object.spec.replicas)", "object.spec.template.spec.containers.size()",
			"int(object.spec.progressDeadlineSeconds)", "int(oldObject.spec.replicas)",
		},
		truths: []string{
			"object.spec.replicas > 2", "object.spec.replicas <= oldObject.spec.replicas", "object.kind == 'Scale'",
			"has(object.spec.template.metadata.labels)", "object.spec.template == oldObject.spec.template",
		},
		patches: []string{
			`JSONPatch{op: "replace", path: "/spec/replicas", value: 2}`,
			`JSONPatch{op: "add", path: "/spec/replicas", value: object.spec.replicas + 1}`,
			`JSONPatch{op: "add", path: "/spec/template/metadata/annotations", value: {"a": "b"}}`,
		},
		applies: []string{
			`Object{spec: Object.spec{replicas: 5}}`, `Object{spec: Object.spec{replicas: object.spec.replicas + 1}}`,
			`Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: "app", env: [Object.spec.template.spec.containers.env{name: "B", value: "2"}]}]}}}}`,
		},
		requests: []Request{
			post(all, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"made","labels":{"team":"shop"}},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"app","image":"registry.test/app"}]}}}}`),
			post(all, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generateName":"made-"},"spec":{"replicas":7,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"app","image":"registry.test/app","env":[{"name":"A","value":"1"}]}]}}}}`),
			merge(one, `{"spec":{"replicas":6},"metadata":{"labels":{"team":"search"}}}`), merge(one, `{"spec":{"paused":true}}`),
			merge(one+"/scale", `{"spec":{"replicas":8}}`),
			put(one+"/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"shop","namespace":"{ns}"},"spec":{"replicas":1}}`),
			merge(one+"/status", `{"status":{"observedGeneration":1,"replicas":2}}`), remove(one),
		},
	}
}

func configMaps() target {
	const all = "/api/v1/namespaces/{ns}/configmaps"
	const one = all + "/settings"
	return target{
		resource: "configmaps", versions: []string{"v1"}, stored: "settings",
		texts: []string{
			"string(object.data.mode)", "string(oldObject.data.level)", "string(object.data['mode'])",
			"string(object.data.?level.orValue('none'))",
		},
		numbers: []string{"int(object.data.level)", "object.data.size()", "int(object.data.mode)"},
		truths: []string{
			"has(object.data)", "has(object.data.mode) && object.data.mode == 'plain'", "object.data == oldObject.data",
			"'mode' in object.data", "has(object.immutable)",
		},
		patches: []string{
			`JSONPatch{op: "add", path: "/data/patched", value: "yes"}`,
			`JSONPatch{op: "add", path: "/data", value: {"all": "new"}}`, `JSONPatch{op: "remove", path: "/data/mode"}`,
		},
		applies: []string{`Object{data: {"applied": "yes"}}`, `Object{immutable: true}`, `Object{data: {"mode": string(object.metadata.name)}}`},
		requests: []Request{
			post(all, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"made","labels":{"team":"shop"}},"data":{"mode":"plain","level":"7"}}`),
			post(all, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"made-"},"data":{"mode":"fancy"}}`),
			post(all, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bare"}}`),
			put(one, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","labels":{"team":"search"}},"data":{"level":"x"}}`),
			merge(one, `{"data":{"level":"9"}}`), remove(one),
			apply(one, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"mode":"applied"}}`),
		},
	}
}

func widgets() target {
	const base = "/apis/conformance.test/v1/namespaces/{ns}/widgets"
	const one, other = base + "/gear", "/apis/conformance.test/v2/namespaces/{ns}/widgets"
	return target{
		group: "conformance.test", resource: "widgets", versions: []string{"v1", "v1", "v2"},
		subresources: []string{"scale", "status"}, stored: "gear",
		texts: []string{
			"string(object.spec.size)", "string(object.spec.port)", "string(object.spec.ratio)", "object.spec.colors.join('+')",
			"string(object.spec.parts[0].count)", "string(object.spec.free.a)",
		},
		numbers: []string{"int(object.spec.replicas)", "object.spec.parts.size()", "int(object.spec.ratio)", "int(object.spec.port)"},
		truths: []string{
			"object.spec.ratio > 0.4", "object.spec.enabled == null", "has(object.spec.enabled)", "'red' in object.spec.colors",
			"type(object.spec.ratio) == double", "object.spec.tags == ['b', 'a']", "object.spec.limits.cpu == '1'",
			"has(object.status)",
		},
		patches: []string{
			`JSONPatch{op: "replace", path: "/spec/replicas", value: 9}`,
			`JSONPatch{op: "add", path: "/spec/colors/-", value: "blue"}`,
			`JSONPatch{op: "add", path: "/spec/unknown", value: "pruned"}`,
			`JSONPatch{op: "add", path: "/spec/ratio", value: 0.25}`,
			`JSONPatch{op: "add", path: "/spec/free", value: {"x": 1, "y": {"z": true}}}`,
			`JSONPatch{op: "replace", path: "/spec/replicas", value: "many"}`,
		},
		applies: []string{
			`Object{spec: Object.spec{size: "large"}}`,
			`Object{spec: Object.spec{parts: [Object.spec.parts{name: "cog", count: 8}, Object.spec.parts{name: "belt"}]}}`,
			`Object{spec: Object.spec{tags: ["z"]}}`, `Object{spec: Object.spec{colors: ["blue"]}}`,
			`Object{spec: Object.spec{limits: {"memory": "1Gi"}}}`, `Object{spec: Object.spec{ratio: 0.75, port: 80}}`,
			`Object{spec: Object.spec{unknown: "x"}}`, `Object{spec: Object.spec{replicas: "many"}}`,
		},
		requests: []Request{
			post(base, `{"apiVersion":"conformance.test/v1","kind":"Widget","metadata":{"name":"made","labels":{"team":"shop"}},"spec":{"replicas":5,"ratio":0.25,"port":"http","colors":["red"],"free":{"a":"b"}}}`),
			post(base, `{"apiVersion":"conformance.test/v1","kind":"Widget","metadata":{"generateName":"made-"},"spec":{"port":80,"enabled":null,"tags":["b","a"],"parts":[{"name":"cog"}],"unknown":1}}`),
			post(other, `{"apiVersion":"conformance.test/v2","kind":"Widget","metadata":{"name":"made","labels":{"team":"search"}},"spec":{"replicas":1,"enabled":true,"colors":[]}}`),
			merge(one, `{"spec":{"replicas":4,"ratio":0.125}}`),
			merge(other+"/gear", `{"metadata":{"labels":{"team":null}},"spec":{"parts":[{"name":"belt","count":2}]}}`),
			merge(one+"/status", `{"status":{"phase":"Spinning","replicas":2}}`), merge(one+"/scale", `{"spec":{"replicas":6}}`), remove(one),
			apply(one, `{"apiVersion":"conformance.test/v1","kind":"Widget","metadata":{"name":"gear"},"spec":{"tags":["c"]}}`),
		},
	}
}

func blobs() target {
	const all = "/apis/conformance.test/v1/namespaces/{ns}/blobs"
	const one = all + "/lump"
	return target{
		group: "conformance.test", resource: "blobs", versions: []string{"v1"}, stored: "lump",
		texts:   []string{"string(object.weight)", "string(object.nested.list[1])", "string(object.nested.ratio)"},
		numbers: []string{"int(object.weight)", "object.nested.list.size()", "int(object.nested.list[2].three)"},
		truths: []string{
			"object.nested.none == null", "object.weight == 7", "has(object.nested.none)", "object.nested.list[0] == 1",
			"type(object.weight) == int",
		},
		patches: []string{
			`JSONPatch{op: "add", path: "/extra", value: [dyn(1), dyn("two"), dyn(3.5), dyn(true)]}`,
			`JSONPatch{op: "replace", path: "/weight", value: 11}`,
			`JSONPatch{op: "add", path: "/nested/list/0", value: "first"}`,
		},
		applies: []string{`Object{weight: 12}`, `Object{nested: Object.nested{ratio: 2.5}}`, `Object{nested: Object.nested{list: ["only"]}}`},
		requests: []Request{
			post(all, `{"apiVersion":"conformance.test/v1","kind":"Blob","metadata":{"name":"made","labels":{"team":"shop"}},"weight":7,"nested":{"list":[1,"a",{"three":3}],"none":null,"ratio":0.5}}`),
			post(all, `{"apiVersion":"conformance.test/v1","kind":"Blob","metadata":{"name":"bare"},"weight":"heavy"}`),
			merge(one, `{"weight":8,"nested":{"ratio":2.5}}`), remove(one),
		},
	}
}

func scalers() target {
	const v1, v2 = "/apis/autoscaling/v1/namespaces/{ns}/horizontalpodautoscalers", "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers"
	return target{
		group: "autoscaling", resource: "horizontalpodautoscalers", versions: []string{"v1", "v2"},
		subresources: []string{"status"}, stored: "scaler",
		texts: []string{
			"string(object.spec.scaleTargetRef.name)", "string(object.spec.metrics[0].type)",
			"string(object.spec.scaleTargetRef.kind)",
		},
		numbers: []string{"int(object.spec.maxReplicas)", "int(object.spec.targetCPUUtilizationPercentage)", "object.spec.metrics.size()"},
		truths: []string{
			"object.spec.maxReplicas < 5", "has(object.spec.metrics)", "has(object.spec.targetCPUUtilizationPercentage)",
			"object.spec.minReplicas == oldObject.spec.minReplicas",
		},
		patches: []string{
			`JSONPatch{op: "replace", path: "/spec/maxReplicas", value: 10}`,
			`JSONPatch{op: "add", path: "/spec/minReplicas", value: 2}`,
		},
		applies: []string{`Object{spec: Object.spec{minReplicas: 3}}`, `Object{spec: Object.spec{maxReplicas: object.spec.maxReplicas + 1}}`},
		requests: []Request{
			post(v1, `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"made","labels":{"team":"shop"}},"spec":{"maxReplicas":3,"targetCPUUtilizationPercentage":60,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"shop"}}}`),
			post(v2, `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"made"},"spec":{"maxReplicas":8,"metrics":[{"type":"Resource","resource":{"name":"memory","target":{"type":"Utilization","averageUtilization":50}}}],"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"shop"}}}`),
			merge(v1+"/scaler", `{"spec":{"maxReplicas":9}}`),
			merge(v2+"/scaler", `{"spec":{"minReplicas":2},"metadata":{"labels":{"team":"search"}}}`), remove(v2 + "/scaler"),
			merge(v2+"/scaler/status", `{"status":{"currentReplicas":2,"desiredReplicas":2}}`),
		},
	}
}

func zones() target {
	const all = "/apis/conformance.test/v1/zones"
	const one = all + "/zone-{slot}"
	return target{
		group: "conformance.test", resource: "zones", versions: []string{"v1"}, cluster: true, stored: "zone-{slot}",
		texts:   []string{"string(object.spec.allowed[0])", "string(object.spec.max)"},
		numbers: []string{"int(object.spec.max)", "object.spec.allowed.size()"},
		truths:  []string{"object.spec.max > 3", "'red' in object.spec.allowed", "object.spec.allowed == oldObject.spec.allowed"},
		patches: []string{`JSONPatch{op: "replace", path: "/spec/max", value: 1}`},
		applies: []string{`Object{spec: Object.spec{max: 6}}`, `Object{spec: Object.spec{allowed: ["green"]}}`},
		requests: []Request{
			post(all, `{"apiVersion":"conformance.test/v1","kind":"Zone","metadata":{"name":"made-{slot}","labels":{"slot":"{slot}","team":"shop"}},"spec":{"max":5,"allowed":["red"]}}`),
			merge(one, `{"spec":{"max":2}}`), merge(one, `{"metadata":{"labels":{"slot":null}},"spec":{"allowed":[]}}`), remove(one),
		},
	}
}

func clusterRoles() target {
	const all = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	const one = all + "/role-{slot}"
	return target{
		group: "rbac.authorization.k8s.io", resource: "clusterroles", versions: []string{"v1"}, cluster: true, stored: "role-{slot}",
		texts:   []string{"string(object.rules[0].verbs[0])", "object.rules.map(r, r.verbs.join('+')).join(',')"},
		numbers: []string{"object.rules.size()", "object.rules[0].resources.size()"},
		truths:  []string{"object.rules.all(r, !('*' in r.verbs))", "object.rules == oldObject.rules", "has(object.aggregationRule)"},
		patches: []string{`JSONPatch{op: "add", path: "/rules/-", value: {"apiGroups": [""], "resources": ["services"], "verbs": ["get"]}}`},
		applies: []string{`Object{rules: [Object.rules{apiGroups: [""], resources: ["pods"], verbs: ["list"]}]}`},
		requests: []Request{
			post(all, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"made-{slot}","labels":{"slot":"{slot}"}},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["*"]}]}`),
			merge(one, `{"metadata":{"labels":{"team":"shop"}}}`), merge(one, `{"rules":[]}`), remove(one),
		},
	}
}
