package policy

import (
	"fmt"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/celengine/uncounted"
	"github.com/ostiary/ostiary/internal/matchresources"
	"github.com/ostiary/ostiary/internal/objectpatch"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/podtemplate"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// subject is what policies are evaluated on: the object of a request, or the Pod that a pod
// template of it produces. A request has one subject for its object, and one for each
// template. Everything after the decoding works on subjects, in the same way for both.
type subject struct {
	*request
	versioned  *admission.VersionedAttributes
	unreadable *UnreadableError // nil if every part could be decoded

	// For the Pod of a template: its path, the workload, the stored workload, the Pod of its
	// template, and the attributes of the Pod.
	template  string
	workload  runtime.Object
	before    runtime.Object
	storedPod admission.LazyObject
	selected  admission.Attributes

	decoded pluginapi.Decoded // decoded for plugins

	typeConverter  managedfields.TypeConverter
	converterKnown bool

	// The values that batches share, nil before the first one.
	shared *uncounted.Batch
	values *uncounted.Evaluation

	read *admissionv1.AdmissionRequest // by validations; nil before the first one reads it

	mutating bool        // the object is the current one of the mutating phase
	compared *comparison // with exceptions; nil before the first one

	decided map[*Compiled]validating.ValidateResult // by a batch
	later   map[*Compiled]*laterPolicy              // that a batch evaluates when their bindings are known
}

// target is a batch of policies with where its subject is in a request.
type target struct {
	*batch
	template *templateTarget // nil for the object of the request
}

// templateTarget is where the Pods of policies are: the path of a template in the objects of
// a resource.
type templateTarget struct {
	resource  metav1.GroupVersionResource
	path      []string
	templates *templates // of each policy of the batch
}

// objectTargets returns the targets of batches that are evaluated on objects.
func objectTargets(batches []*batch) []target {
	out := make([]target, len(batches))
	for i, b := range batches {
		out[i].batch = b
	}
	return out
}

// matches reports whether a request can have the subject.
func (t *target) matches(r *request, host Environment) bool {
	if t.template == nil {
		return t.policies[0].rules.Matches(r.match, r.original, host.Objects) // the others have equal rules
	}
	return r.raw.Resource == t.template.resource && r.raw.SubResource == "" &&
		(r.raw.Operation == admissionv1.Create || r.raw.Operation == admissionv1.Update)
}

// readsFor returns what is read of a request. Of a workload that is what the policies read of
// the Pod, and for an UPDATE the whole template, to find whether it changes.
func (t *target) readsFor(operation admissionv1.Operation) inputs {
	if t.template == nil {
		return t.reads
	}
	workload := identity().Union(unstructuredjson.Path("metadata", "ownerReferences"))
	path, out := t.template.path, t.reads
	if operation == admissionv1.Update {
		template := unstructuredjson.Path(path...)
		out.object, out.oldObject = template.Union(workload), template.Union(workload)
		return out
	}
	out.object = out.object.Union(unstructuredjson.Path("metadata", "labels")).At(path...).Union(workload)
	out.oldObject = unstructuredjson.Selection{}
	return out
}

// matchedTarget is a target that matches a request, with its subject.
type matchedTarget struct {
	*target
	on *subject
}

// subjects finds the subjects of targets, and leaves out targets without one.
func (r *request) subjects(all []matchedTarget, host Environment) []matchedTarget {
	var pods map[string]*subject
	out := all[:0]
	for _, m := range all {
		if m.template == nil {
			m.on = &r.whole
			out = append(out, m)
			continue
		}
		if pods == nil {
			pods = map[string]*subject{}
		}
		m.on = r.podOnce(pods, m.template, host)
		if m.on != nil && m.template.templates.matches(m.on, host) {
			out = append(out, m)
		}
	}
	return out
}

// podOnce returns the Pod of a template, which targets with the same template share.
func (r *request) podOnce(pods map[string]*subject, t *templateTarget, host Environment) *subject {
	key := string(t.templates.operation) + " " + strings.Join(t.path, ".")
	pod, ok := pods[key]
	if !ok {
		pod = r.pod(t.path, t.templates.operation, host)
		pods[key] = pod
	}
	return pod
}

// pod returns the subject that policies for Pods see: its objects are the Pods that the
// template at a path produces. It returns nil if there is no template, or if an UPDATE
// does not change it. The Pods share their values with the workload.
//
// A changed template produces new Pods and updates none. Policies for new Pods therefore see
// a CREATE without an old object, also if the request is an UPDATE of the workload.
func (r *request) pod(path []string, operation admission.Operation, host Environment) *subject {
	whole := r.whole.versioned
	pod := &subject{
		request:    r,
		unreadable: r.whole.unreadable,
		template:   strings.Join(path, "."),
		workload:   whole.VersionedObject.Object(),
		before:     whole.VersionedOldObject.Object(),
	}
	var object, stored runtime.Object
	if pod.unreadable == nil {
		current, err := podtemplate.At(pod.workload, path)
		if err != nil {
			pod.unreadable = &UnreadableError{What: "request.object", Err: err}
		}
		before, _ := podtemplate.At(pod.before, path) // the stored object is as it is
		unchanged := before != nil && !host.unchangedTemplates && reflect.DeepEqual(current, before)
		if err == nil && (current == nil || unchanged) {
			return nil
		}
		object, stored = podtemplate.Pod(current, r.raw.Namespace), podtemplate.Pod(before, r.raw.Namespace)
	}
	pod.storedPod = admission.NewLazyObject(stored)
	requested, oldObject := operation, runtime.Object(nil)
	if operation != admission.Create {
		requested, oldObject = whole.GetOperation(), stored
	}
	pod.versioned = &admission.VersionedAttributes{
		Attributes:         withObjects(whole.Attributes, requested, object, oldObject),
		VersionedObject:    admission.NewLazyObject(object),
		VersionedOldObject: admission.NewLazyObject(oldObject),
		VersionedKind:      whole.VersionedKind,
	}
	core := corev1.SchemeGroupVersion
	pod.selected = admission.NewAttributesRecord(object, oldObject, core.WithKind("Pod"), r.raw.Namespace, "",
		core.WithResource("pods"), "", operation, whole.GetOperationOptions(), whole.IsDryRun(), whole.GetUserInfo())
	return pod
}

// selection returns the attributes that selectors and plugins see: those of the Pod, if the
// request is about a template.
func (on *subject) selection() admission.Attributes {
	if on.selected != nil {
		return on.selected
	}
	return on.versioned.Attributes
}

// selectedBy reports whether criteria match the subject.
func (on *subject) selectedBy(c *matchresources.Criteria, host Environment) (bool, error) {
	return c.Matches(on.selection(), host.Matcher, host.Objects)
}

// storedObject returns the object that ratcheting validations are evaluated on again: the
// stored object of an UPDATE, or the Pod of its template; nil if there is none.
func (on *subject) storedObject() *admission.LazyObject {
	stored := &on.storedPod
	if on.template == "" {
		stored = &on.versioned.VersionedOldObject
	}
	if on.raw.Operation != admissionv1.Update || stored.Object() == nil {
		return nil
	}
	return stored
}

// withObjects returns attributes with another operation and other objects.
func withObjects(a admission.Attributes, operation admission.Operation, object, oldObject runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(object, oldObject, a.GetKind(), a.GetNamespace(), a.GetName(), a.GetResource(),
		a.GetSubresource(), operation, a.GetOperationOptions(), a.IsDryRun(), a.GetUserInfo())
}

// kindOfObject is the kind of the object that policies see.
func (on *subject) kindOfObject() schema.GroupVersionKind {
	if on.template != "" {
		return corev1.SchemeGroupVersion.WithKind("Pod")
	}
	return on.versioned.VersionedKind
}

// atTemplate adds the path of the template to an error.
func (on *subject) atTemplate(err error) error {
	if on.template == "" {
		return err
	}
	return fmt.Errorf("%s: %w", on.template, err)
}

// checkTemplate rejects a mutation of a template that has no effect on its Pods.
func (on *subject) checkTemplate(before, after runtime.Object) error {
	if on.template == "" {
		return nil
	}
	return podtemplate.CheckChange(before, after)
}

// converter finds the schema of the object's kind, once for a request, because the search
// for an unknown one takes time.
func (on *subject) converter(converters TypeConverters) managedfields.TypeConverter {
	if !on.converterKnown {
		on.converterKnown = true
		if found := converters.GetTypeConverter(on.kindOfObject()); found != nil {
			on.typeConverter = objectpatch.NewMergingConverter(found)
		}
	}
	return on.typeConverter
}

// changedObject returns the object of a request with the changes of its subjects: the Pods of
// templates are written to the templates.
func changedObject(r *request, matched []matchedTarget) runtime.Object {
	out := r.whole.versioned.VersionedObject.Object()
	done := map[*subject]bool{}
	for _, m := range matched {
		if m.template == nil || done[m.on] {
			continue
		}
		before := m.on.versioned.Attributes.GetObject()
		after, ok := m.on.versioned.VersionedObject.Object().(*unstructured.Unstructured)
		if !ok || after == before {
			continue
		}
		done[m.on] = true
		workload, _ := out.(*unstructured.Unstructured) // it has a template
		out = &unstructured.Unstructured{Object: podtemplate.Replace(workload.Object, m.template.path, after.Object)}
	}
	return out
}
