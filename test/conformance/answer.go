package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Answer is what a client and the audit log see of a request.
type Answer struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// About is the object that a failure is about.
	About       string            `json:"about,omitempty"`
	Causes      []string          `json:"causes,omitempty"`
	Warnings    []string          `json:"warnings,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Failures are those of validations whose action is Audit.
	Failures []Failure `json:"failures,omitempty"`
	// Object is the resulting object, less what the server fills in.
	Object any `json:"object,omitempty"`
}

// Failure is one entry of the audit annotation for failed validations.
type Failure struct {
	Message           string   `json:"message"`
	Policy            string   `json:"policy"`
	Binding           string   `json:"binding,omitempty"`
	ExpressionIndex   int      `json:"expressionIndex"`
	ValidationActions []string `json:"validationActions"`
}

// String is the answer's beginning: allowed, or code, reason and message.
func (a *Answer) String() string {
	if a.Code < http.StatusBadRequest {
		return "allowed"
	}
	return fmt.Sprintf("%d %s: %s", a.Code, a.Reason, a.Message)
}

// YAML is the answer in full.
func (a *Answer) YAML() string {
	out, err := yaml.Marshal(a)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// status has what the suite compares of a metav1.Status.
type status struct {
	Kind    string `json:"kind"`
	Status  any    `json:"status"` // of other kinds it is an object
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		Name   string `json:"name"`
		Group  string `json:"group"`
		Kind   string `json:"kind"`
		Causes []struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
			Field   string `json:"field"`
		} `json:"causes"`
		RetryAfterSeconds int `json:"retryAfterSeconds"`
	} `json:"details"`
}

// answerOf reads a reply, as it is on both sides.
func answerOf(r Request, in *reply, annotations map[string]string) (*Answer, error) {
	out := &Answer{Code: in.code, Warnings: slices.Sorted(slices.Values(in.warnings)), Annotations: maps.Clone(annotations)}
	maps.DeleteFunc(out.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, "apiserver.latency.k8s.io/") })
	var s status
	switch err := json.Unmarshal(in.body, &s); {
	case err != nil:
		out.Message = string(in.body) // not from the API: a proxied or upgraded connection
	case s.Kind == "Status" && s.Status == "Failure":
		out.Reason, out.Message = s.Reason, s.Message
		out.About = strings.Join([]string{s.Details.Group, s.Details.Kind, s.Details.Name}, "/")
		for _, c := range s.Details.Causes {
			out.Causes = append(out.Causes, strings.TrimSpace(c.Reason+" "+c.Field+" "+c.Message))
		}
		slices.Sort(out.Causes)
	default:
		var object map[string]any
		if err := json.Unmarshal(in.body, &object); err != nil {
			return nil, fmt.Errorf("decoding an object: %w", err)
		}
		out.Object = withoutServerSet(object)
	}
	out.texts(sortAtomics)
	return withoutGeneratedName(r, out)
}

// withoutServerSet drops what two API servers never agree on.
func withoutServerSet(object map[string]any) map[string]any {
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "deletionTimestamp"} {
			delete(metadata, field)
		}
	}
	if details, ok := object["details"].(map[string]any); ok {
		delete(details, "uid")
	}
	return object
}

// withoutGeneratedName replaces the name that the server made of generateName,
// also where an expression made capital letters of it.
func withoutGeneratedName(r Request, a *Answer) (*Answer, error) {
	var body struct {
		Metadata struct {
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil || body.Metadata.GenerateName == "" {
		return a, nil //nolint:nilerr // a patch has no generateName
	}
	generated := regexp.MustCompile("(?i)" + regexp.QuoteMeta(body.Metadata.GenerateName) + `[bcdfghjklmnpqrstvwxz2456789]{5}`)
	text, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	out := &Answer{}
	if err := json.Unmarshal(generated.ReplaceAll(text, []byte(body.Metadata.GenerateName+"(generated)")), out); err != nil {
		return nil, fmt.Errorf("decoding an answer: %w", err)
	}
	return out, nil
}

// atomics are listed in an order that changes from call to call.
var atomics = regexp.MustCompile(`(may not mutate atomic arrays, maps or structs: )(\.[^\s,]+(?:, \.[^\s,]+)*)`)

func sortAtomics(s string) string {
	return atomics.ReplaceAllStringFunc(s, func(match string) string {
		parts := atomics.FindStringSubmatch(match)
		return parts[1] + strings.Join(slices.Sorted(slices.Values(strings.Split(parts[2], ", "))), ", ")
	})
}

// texts applies a function to every text that an engine writes.
func (a *Answer) texts(f func(string) string) {
	a.Message = f(a.Message)
	for _, list := range [][]string{a.Causes, a.Warnings} {
		for i := range list {
			list[i] = f(list[i])
		}
	}
	for i := range a.Failures {
		a.Failures[i].Message = f(a.Failures[i].Message)
		a.Failures[i].Binding = f(a.Failures[i].Binding)
	}
}
