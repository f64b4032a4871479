package verify

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/offline"
)

// failureAnnotation is the end of the keys of audit annotations with the failed validations.
const failureAnnotation = "validation_failure"

// withoutEffect is the decision about a request that passes unchanged.
const withoutEffect = "allows it"

// ofPolicy is what begins a message: the kind and the names of a policy and its binding.
var ofPolicy = regexp.MustCompile(
	`^(?:Validation failed for \w+ '[^']*'(?: with binding '[^']*')?: |.*?\bdenied request: )`,
)

// decisionText writes all effects of a policy about an object: the denial, warnings, audit
// annotations and changes. The prefix begins the keys of audit annotations. Names of kinds,
// policies and bindings are not in it, nor are the messages of mutations, to which Ostiary
// adds the field.
func decisionText(prefix string, p *v1alpha1.WebhookPolicy, object []byte, r *offline.Result) (string, error) {
	parts := []string{withoutEffect}
	switch {
	case !r.Allowed && p.Spec.Mutates():
		parts[0] = "denies it"
	case !r.Allowed:
		message := r.Status.Message
		if d := r.Status.Details; d != nil && len(d.Causes) > 0 {
			message = d.Causes[0].Message
		}
		parts[0] = fmt.Sprintf("denies it with %d %s: %s", r.Status.Code, r.Status.Reason, onLine(message))
	}
	for i, w := range r.Warnings {
		if !slices.Contains(r.Warnings[:i], w) { // clients get each text once
			parts = append(parts, "warns: "+onLine(w))
		}
	}
	audited, err := auditTexts(r.AuditAnnotations)
	if err != nil {
		return "", err
	}
	parts = append(parts, audited...)
	for _, a := range p.Spec.AuditAnnotations {
		if value, ok := r.AuditAnnotations[prefix+a.Key]; ok {
			parts = append(parts, fmt.Sprintf("annotates %s: %s", a.Key, onLine(value)))
		}
	}
	changes, err := changesOf(object, r)
	return strings.Join(append(parts, changes...), "; "), err
}

// onLine returns a message without names, on one line, as converted messages are.
func onLine(message string) string {
	return strings.Join(strings.Fields(ofPolicy.ReplaceAllString(message, "")), " ")
}

// auditTexts returns the failed validations among audit annotations.
func auditTexts(annotations map[string]string) (out []string, err error) {
	for key, text := range annotations {
		if key != failureAnnotation && !strings.HasSuffix(key, "/"+failureAnnotation) {
			continue
		}
		var values []validating.ValidationFailureValue
		if err := json.Unmarshal([]byte(text), &values); err != nil {
			return nil, fmt.Errorf("reading the audit annotation %s: %w", key, err)
		}
		for _, v := range values {
			out = append(
				out,
				fmt.Sprintf(
					"audits validation %d for %v: %s",
					v.ExpressionIndex,
					v.ValidationActions,
					onLine(v.Message),
				),
			)
		}
	}
	return out, nil
}

// changesOf returns the changes of an object as a merge patch.
func changesOf(object []byte, r *offline.Result) ([]string, error) {
	if len(object) == 0 || len(r.Object) == 0 || !r.Allowed {
		return nil, nil
	}
	patch, err := jsonpatch.CreateMergePatch(object, r.Object)
	if err != nil {
		return nil, fmt.Errorf("comparing objects: %w", err)
	}
	if string(patch) == "{}" {
		return nil, nil
	}
	return []string{"changes " + string(patch)}, nil
}
