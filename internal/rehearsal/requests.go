package rehearsal

import (
	"encoding/json"
	"maps"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// request is a request about a probe.
type request struct {
	admissionv1.AdmissionRequest
	invented bool
	// mutatingObject is the object before the API server completes its metadata; nil if it is the
	// same.
	mutatingObject []byte
}

// caller is a user without any other attribute than a name and the group that every user has.
func caller() authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: "probe", Groups: []string{"system:authenticated"}}
}

// requestsFor returns the requests of one operation.
func requestsFor(t *target, o admissionv1.Operation, probes []probe,
	spec *v1alpha1.WebhookPolicySpec) (out []request) {
	switch o {
	case admissionv1.Create:
		for _, p := range probes {
			out = append(out, creation(t, p, spec))
		}
		if t.name() == "pods" && spec.Mutates() && len(probes) > 0 {
			out = append(out, unnamed(t, probes[0], spec))
		}
	case admissionv1.Connect:
		for _, p := range probes {
			out = append(out, newRequest(t, o, p.object, nil, p.invented, spec))
		}
	case admissionv1.Delete:
		for _, p := range probes {
			out = append(out, newRequest(t, o, nil, stored(p.object), p.invented, spec))
		}
	case admissionv1.Update:
		for i, p := range probes {
			out = append(out, newRequest(t, o, stored(p.object), stored(p.object), p.invented, spec))
			if i > 0 && i == len(probes)-1 && t.subresource == "" { // labels and annotations are added and removed
				out = append(out, newRequest(t, o, stored(p.object), stored(probes[0].object), p.invented, spec),
					newRequest(t, o, stored(probes[0].object), stored(p.object), p.invented, spec))
			}
		}
	}
	return out
}

func creation(t *target, p probe, spec *v1alpha1.WebhookPolicySpec) request {
	r := newRequest(t, admissionv1.Create, p.object, nil, p.invented, spec)
	early := runtime.DeepCopyJSON(p.object)
	m := metadataOf(early)
	for _, field := range []string{"uid", "creationTimestamp", "generation", "managedFields", "selfLink"} {
		delete(m, field)
	}
	delete(early, "status")
	setStrings(early, "labels", r.labels(spec))
	r.mutatingObject = encode(early)
	return r
}

// unnamed is the creation of a Pod by a controller: it has a name only after mutations.
func unnamed(t *target, p probe, spec *v1alpha1.WebhookPolicySpec) request {
	named := probe{object: runtime.DeepCopyJSON(p.object), invented: p.invented}
	m := metadataOf(named.object)
	m["generateName"], m["name"] = "probe-", "probe-x7x7x"
	r := creation(t, named, spec)
	early := map[string]any{}
	if json.Unmarshal(r.mutatingObject, &early) == nil {
		delete(metadataOf(early), "name")
		r.mutatingObject = encode(early)
	}
	return r
}

// labels are those that the objectSelector needs.
func (r *request) labels(spec *v1alpha1.WebhookPolicySpec) map[string]string {
	set, _ := satisfy(spec.MatchConstraints.ObjectSelector)
	return set
}

// stored returns an object as it is stored.
func stored(object map[string]any) map[string]any {
	out := runtime.DeepCopyJSON(object)
	metadataOf(out)["resourceVersion"] = "1"
	return out
}

func newRequest(t *target, o admissionv1.Operation, object, old map[string]any, invented bool,
	spec *v1alpha1.WebhookPolicySpec) request {
	kind, resource := metav1.GroupVersionKind(t.GroupVersionKind),
		metav1.GroupVersionResource{Group: t.Served.Group, Version: t.Served.Version, Resource: t.resource}
	r := request{invented: invented, AdmissionRequest: admissionv1.AdmissionRequest{
		UID: uid, Kind: kind, RequestKind: &kind, Resource: resource, RequestResource: &resource,
		SubResource: t.subresource, RequestSubResource: t.subresource,
		Name: "probe", Operation: o, UserInfo: caller(), DryRun: new(bool),
		Options: runtime.RawExtension{Raw: optionsOf(o)},
	}}
	if t.namespaced {
		r.Namespace = namespaceFor(spec).Name
	}
	if t.resource == "namespaces" {
		r.Namespace = r.Name
	}
	set := r.labels(spec)
	for _, u := range []struct {
		object map[string]any
		into   *runtime.RawExtension
	}{{object, &r.Object}, {old, &r.OldObject}} {
		if u.object == nil {
			continue
		}
		copied := runtime.DeepCopyJSON(u.object)
		if name, ok := metadataName(copied); ok {
			r.Name = name
		}
		if _, ok := copied["metadata"]; ok {
			if t.namespaced {
				metadataOf(copied)["namespace"] = r.Namespace
			}
			if lacks, _ := lacksLabels(t); !lacks {
				setStrings(copied, "labels", set)
			}
		}
		u.into.Raw = encode(copied)
	}
	return r
}

func optionsOf(o admissionv1.Operation) []byte {
	switch o {
	case admissionv1.Create:
		return []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`)
	case admissionv1.Update:
		return []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"UpdateOptions"}`)
	case admissionv1.Delete:
		return []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions"}`)
	}
	return nil
}

// encode never fails: the objects come from JSON.
func encode(object map[string]any) []byte {
	out, _ := json.Marshal(object)
	return out
}

// namespaceFor returns a Namespace that the namespaceSelector selects.
func namespaceFor(spec *v1alpha1.WebhookPolicySpec) *corev1.Namespace {
	set, _ := satisfy(spec.MatchConstraints.NamespaceSelector)
	set = maps.Clone(set)
	if set == nil {
		set = map[string]string{}
	}
	if set[corev1.LabelMetadataName] == "" {
		set[corev1.LabelMetadataName] = metav1.NamespaceDefault
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: set[corev1.LabelMetadataName], Labels: set, UID: uid},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
}

func metadataName(object map[string]any) (name string, ok bool) {
	if m, isMap := object["metadata"].(map[string]any); isMap {
		name, ok = m["name"].(string)
	}
	return name, ok
}
