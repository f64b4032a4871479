package results

import (
	"cmp"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/audit"
)

// Finding is what a policy finds about a stored object.
type Finding struct {
	// Policy begins with NativePrefix for a native one.
	Policy string
	// Namespace is empty for a cluster-scoped object. That of a Namespace is its own name.
	Namespace  string
	APIVersion string
	Kind, Name string
	Controller string
	// Generation of the policy; empty if it is not known.
	Generation string
	// Result is fail, warn or error, and Operation that of the request that would fail.
	Result, Operation string
	Rule, Message     string
}

// FindingOf returns the finding of a policy about an object; false if it passes, also because of an
// exception.
func FindingOf(policy string, o *audit.Object, controller string, got audit.Result) (Finding, bool) {
	v := VerdictOf(got)
	if !v.isDescribed() || v == Excepted {
		return Finding{}, false
	}
	f := Finding{
		Policy: policy, Namespace: o.Namespace, APIVersion: o.Kind.GroupVersion().String(), Kind: o.Kind.Kind, Name: o.Name,
		Controller: controller, Result: v.result(), Operation: v.operation(),
	}
	f.Rule, f.Message = describe(got)
	return f, true
}

// ReportResources are the resources of reports, for objects in namespaces and for the cluster.
func ReportResources() (reports, clusterReports schema.GroupVersionResource) {
	gv := schema.GroupVersion{Group: "openreports.io", Version: "v1alpha1"}
	return gv.WithResource("reports"), gv.WithResource("clusterreports")
}

// ReadReport is the content of a report, as far as it is about stored objects.
type ReadReport struct {
	Findings []Finding
	// Skipped says which policies are not evaluated, or not completely.
	Skipped []Skipped
	// Omitted is the number of findings of the namespace without a result.
	Omitted int64
	// Written is the time of the last write by the audit; zero if it is not known.
	Written time.Time
}

// Skipped is why a policy is not evaluated, or not completely.
type Skipped struct {
	Policy, Why string
	// IsUnread means that violations can be missing, because objects could not be read or have not
	// been evaluated yet.
	IsUnread bool
}

// ReadReportOf reads a report. Users of its namespace can write it, so only its own namespace
// counts, and values of other types are left out. It returns false for a report of another source.
func ReadReportOf(u *unstructured.Unstructured) (out ReadReport, ok bool) {
	if source, _, _ := unstructured.NestedString(u.Object, "source"); source != ReportSource {
		return out, false
	}
	out.Omitted, _ = strconv.ParseInt(u.GetAnnotations()[annotationOmitted], 10, 64)
	for _, m := range u.GetManagedFields() {
		if m.Manager == ReportManager && m.Time != nil && m.Time.After(out.Written) {
			out.Written = m.Time.Time
		}
	}
	list, _ := u.Object["results"].([]any)
	for _, item := range list {
		if line, isMap := item.(map[string]any); isMap {
			out.add(u.GetNamespace(), line)
		}
	}
	return out, true
}

func (r *ReadReport) add(namespace string, line map[string]any) {
	f := Finding{Namespace: namespace, Policy: textAt(line, "policy"), Result: textAt(line, "result")}
	if textAt(line, "source") == NativeKind {
		f.Policy = NativePrefix + f.Policy
	}
	f.Rule, f.Message = textAt(line, "rule"), textAt(line, "message")
	if f.Result == "skip" && textAt(line, "properties", propertyException) != "" {
		return
	}
	if f.Result == "skip" {
		reason := textAt(line, "properties", propertyReason)
		r.Skipped = append(r.Skipped, Skipped{
			Policy: f.Policy, Why: f.Message, IsUnread: reason == reasonPending || reason == reasonIncomplete,
		})
		return
	}
	objects, _ := line["resources"].([]any)
	for _, item := range objects {
		object, isMap := item.(map[string]any)
		if !isMap {
			continue
		}
		f.APIVersion, f.Kind, f.Name = textAt(object, "apiVersion"), textAt(object, "kind"), textAt(object, "name")
		f.Operation = cmp.Or(textAt(line, "properties", propertyOperation), Violated.operation())
		f.Controller = textAt(line, "properties", propertyController)
		f.Generation = textAt(line, "properties", propertyGeneration)
		r.Findings = append(r.Findings, f)
	}
}

// textAt returns a string in a tree; "" if there is none.
func textAt(tree map[string]any, path ...string) string {
	text, _, _ := unstructured.NestedString(tree, path...) // an error is another type
	return text
}
