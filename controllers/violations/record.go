package violations

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/truncate"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// Bounds of a record. A line of the log is then shorter than 16 KiB, the longest that container runtimes do not split.
const (
	maxDetails     = 10
	maxDetailBytes = 4 << 10 // all of one record together
	maxMessage     = 1 << 10 // bytes
	maxName        = 253     // bytes
	maxUser        = 512     // bytes
	maxOwners      = 16 << 10
)

// record is a violation without the request: a line of the log.
type record struct {
	Time      time.Time       `json:"time"`
	Log       string          `json:"log"`
	Policy    string          `json:"policy"`
	Decision  policy.Decision `json:"decision"`
	User      string          `json:"user"`
	Operation string          `json:"operation"`
	Object    object          `json:"object"`
	// Owner is the controller that the object names.
	Owner      *owner   `json:"owner,omitempty"`
	DryRun     bool     `json:"dryRun"`
	UID        string   `json:"uid"`
	Violations []detail `json:"violations"`
	Omitted    int      `json:"omittedViolations,omitempty"`
}

// object names the object of a request.
type object struct {
	APIVersion  string `json:"apiVersion"`
	Kind        string `json:"kind"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
}

type owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// detail is one violation of the policy.
type detail struct {
	Decision   policy.Decision `json:"decision"`
	Binding    string          `json:"binding,omitempty"`
	Validation string          `json:"validation,omitempty"`
	Template   string          `json:"template,omitempty"`
	Exception  string          `json:"exception,omitempty"`
	Message    string          `json:"message"`
}

func newRecord(v policy.ViolationReport, now time.Time) *record {
	q := v.Request
	r := &record{
		Time: now, Log: "violation", Policy: v.Policy, Decision: v.Decision,
		User: text(q.UserInfo.Username, maxUser), Operation: string(q.Operation),
		Object: object{
			APIVersion: text(schema.GroupVersion{Group: q.Kind.Group, Version: q.Kind.Version}.String(), maxName),
			Kind:       text(q.Kind.Kind, maxName), Resource: text(q.Resource.Resource, maxName), Subresource: text(q.SubResource, maxName),
			Namespace: text(q.Namespace, maxName), Name: text(q.Name, maxName),
		},
		DryRun: q.DryRun != nil && *q.DryRun, UID: text(string(q.UID), maxName),
	}
	raw := q.Object.Raw
	if len(raw) == 0 {
		raw = q.OldObject.Raw
	}
	r.Owner = controllerOf(raw)
	left := maxDetailBytes
	for _, d := range v.Violations() {
		exception := ""
		if d.Exception != nil {
			exception = d.Exception.String()
		}
		size := min(len(d.Message), maxMessage) + len(d.Binding) + len(d.Validation) + len(d.Template) + len(exception)
		if left -= size; left < 0 || len(r.Violations) == maxDetails {
			r.Omitted++
			continue
		}
		r.Violations = append(r.Violations, detail{d.Decision, d.Binding, d.Validation, d.Template, exception, text(d.Message, maxMessage)})
	}
	return r
}

// Subject returns the controller of the object of a request, or else the object itself, as "Kind/namespace/name". Requests
// about different objects of one controller have the same subject, because a change of the controller corrects all of them.
func Subject(q *admissionv1.AdmissionRequest) string {
	raw := q.Object.Raw
	if len(raw) == 0 {
		raw = q.OldObject.Raw
	}
	kind, name := q.Kind.Kind, q.Name
	if o := controllerOf(raw); o != nil {
		kind, name = o.Kind, o.Name
	}
	if name == "" {
		name = strings.Trim(string(member(member(raw, "metadata"), "generateName")), `"`) + "*"
	}
	return kind + "/" + q.Namespace + "/" + name
}

// text returns a copy of external text that shows as one line. Characters that are not printable become spaces: they
// could move the cursor of a terminal, or reverse the direction of writing.
func text(s string, limit int) string {
	return strings.Clone(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(truncate.String(s, limit), "?")))
}

// controllerOf returns the controller that an object names in its metadata, nil without one. It decodes nothing else.
func controllerOf(raw []byte) *owner {
	owners := member(member(raw, "metadata"), "ownerReferences")
	if len(owners) == 0 || len(owners) > maxOwners {
		return nil
	}
	var references []metav1.OwnerReference
	if json.Unmarshal(owners, &references) != nil {
		return nil
	}
	for _, o := range references {
		if o.Controller != nil && *o.Controller {
			return &owner{text(o.APIVersion, maxName), text(o.Kind, maxName), text(o.Name, maxName), text(string(o.UID), maxName)}
		}
	}
	return nil
}

// member returns a member of a JSON object, nil without it.
func member(raw []byte, name string) (value []byte) {
	unstructuredjson.Members(raw, 0, func(found []byte, _, start int) int {
		end := unstructuredjson.EndOfValue(raw, start)
		if string(found) == name && end <= len(raw) {
			value = raw[start:end]
		}
		return end
	})
	return value
}
