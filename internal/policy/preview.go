package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/objectpatch"
	"github.com/ostiary/ostiary/internal/response"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// auditPreviewKey is the key of a policy's annotation that lists what its mutations would
	// change.
	auditPreviewKey = "preview"
	// maxPreviewed is the maximum of operations that a preview names.
	maxPreviewed = 20
	// maxPreviewText is the maximum of bytes of a preview. Names of fields can be long.
	maxPreviewText = 1 << 10
)

// previews are what the mutations of policies would change, by the name of the policy.
type previews = response.Annotations

// previewed is what the previews of one policy have made of a subject so far: its next preview
// begins with it, so that together they change what they would change if they were applied.
type previewed struct {
	policy *Compiled
	on     *subject
	before runtime.Object // the object of the subject, which the previews left as it is
	after  runtime.Object
}

// runPreview runs a step and takes its changes back.
func (a *answer) runPreview(ctx context.Context, s *step, host Environment) Decision {
	versioned := s.on.versioned
	before := versioned.VersionedObject.Object()
	start := before
	if p := a.last; p.policy == s.policy && p.on == s.on && p.before == before {
		start = p.after
		versioned.UpdateObject(start)
	}
	outcome := s.run(ctx, host)
	after := versioned.VersionedObject.Object()
	versioned.UpdateObject(before)
	a.last = previewed{s.policy, s.on, before, after}
	if after == start || outcome == DecisionError && s.policy.failurePolicy != admissionregistrationv1.Ignore {
		return outcome
	}
	s.previewed = differences(start, after)
	switch {
	case len(s.previewed) == 0 && outcome == DecisionMutate:
		return DecisionAllow
	case outcome == DecisionMutate:
		return DecisionPreview
	}
	return outcome
}

func differences(before, after runtime.Object) []objectpatch.Operation {
	old, okOld := before.(*unstructured.Unstructured)
	changed, okChanged := after.(*unstructured.Unstructured)
	if !okOld || !okChanged {
		return nil
	}
	return objectpatch.Diff(old.Object, changed.Object)
}

// preview adds what a step would change to the audit annotations, and to the warnings if its
// binding warns.
func (a *answer) preview(s *step) {
	text := describeOperations(s.previewed)
	at := ""
	if s.on.template != "" {
		at = " at " + s.on.template
	}
	if a.previews == nil {
		a.previews = previews{}
	}
	a.Collect(a.previews, validating.PolicyAuditAnnotation{Key: s.policy.name, Value: s.binding.name + at + ": " + text})
	if slices.Contains(s.actions(), admissionregistrationv1.Warn) {
		a.WarnOnce(s.binding.subject + " would change the object" + at + ": " + text + s.binding.help)
	}
}

// annotatePreviews adds previews to the audit annotations.
func (a *answer) annotatePreviews() {
	for policy, values := range a.previews {
		a.Publish(policy, response.Annotations{auditPreviewKey: values})
	}
}

// previewText describes what a step would change, as a JSON patch if values are permitted.
func (s *step) previewText(values bool) string {
	if !values {
		return "the mutations would change the object: " + describeOperations(s.previewed)
	}
	patch, err := json.Marshal(s.previewed)
	if err != nil {
		return "the patch cannot be encoded"
	}
	return string(patch)
}

// describeOperations names the operations of a patch without values.
func describeOperations(operations []objectpatch.Operation) string {
	var b strings.Builder
	for i, o := range operations {
		size := len(o.Op) + len(o.Path) + len(response.Separator) + 1
		if i == maxPreviewed || i > 0 && b.Len()+size > maxPreviewText {
			fmt.Fprintf(&b, " and %d more", len(operations)-i)
			break
		}
		if i > 0 {
			b.WriteString(response.Separator)
		}
		b.WriteString(o.Op + " " + truncate.String(o.Path, maxPreviewText/2))
	}
	return b.String()
}
