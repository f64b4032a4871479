package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	maxAnnotationValue = 10 << 10 // bytes, as the API server's own
	maxAnnotationKey   = 63       // bytes, a qualified name's part
	keyHash            = 10       // hexadecimal digits
	separator          = ", "     // the API server's, between values of one key
)

// annotationCollector holds the values of one policy's audit annotations by key, from all
// bindings and params, each value once.
type annotationCollector map[string][]string

// annotate adds the audit annotations of one evaluation and reports whether one of them
// failed. A failure denies the request, with any action of the binding.
func (a *answer) annotate(into annotationCollector, r result) (failed bool) {
	for _, x := range r.annotations {
		switch x.Action {
		case validating.AuditAnnotationActionPublish:
			a.collect(into, x)
		case validating.AuditAnnotationActionError:
			failed = true
			a.deny(denial{message: r.binding.subject + " denied request: " + truncate.String(x.Error, maxOneMessage)})
		}
	}
	return failed
}

// collect adds a value that is new, if there is room for it.
func (a *answer) collect(into annotationCollector, x validating.PolicyAuditAnnotation) {
	value := x.Value
	if len(value) > maxAnnotationValue {
		value = strings.ToValidUTF8(value[:maxAnnotationValue], "")
	}
	if slices.Contains(into[x.Key], value) {
		return
	}
	size := len(value) + len(separator)
	if a.annotationText+size > maxAnnotations-keptForFailures {
		a.valuesLeftOut++
		return
	}
	a.annotationText += size
	into[x.Key] = append(into[x.Key], value)
}

// publish joins the values of each key as the API server does.
func (a *answer) publish(policy string, collected annotationCollector) {
	for key, values := range collected {
		a.setAnnotation(annotationKey(policy, key), strings.Join(values, separator))
	}
}

func (a *answer) setAnnotation(key, value string) {
	if a.annotations == nil {
		a.annotations = map[string]string{}
	}
	a.annotations[key] = value
}

// annotationKey returns the key of a policy's annotation. The API server puts the name of
// the webhook and a slash before it and drops keys that are not the name part of a
// qualified name. The native key has a slash between policy and key, so it is not such a
// name part. A key that is too long is cut and gets a hash.
func annotationKey(policy, key string) string {
	name := policy + "." + key
	if len(name) <= maxAnnotationKey {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxAnnotationKey-keyHash-1] + "-" + hex.EncodeToString(sum[:])[:keyHash]
}
