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

// annotationCollector gathers the values of one policy's audit annotations by
// key, over all its bindings and params, each value once.
type annotationCollector map[string][]string

// annotate takes in the audit annotations of one evaluation and reports whether
// one of them failed. A failure denies, whatever the binding's actions are.
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

// collect takes in a value, if it is new and there is room for it.
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

// annotationKey is the key for a policy's annotation. The API server puts the
// webhook's name and a slash before it, and drops keys that are not parts of
// qualified names; the native key, with a slash between policy and key, is not
// one. A name that is too long is cut and told apart by a hash.
func annotationKey(policy, key string) string {
	name := policy + "." + key
	if len(name) <= maxAnnotationKey {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxAnnotationKey-keyHash-1] + "-" + hex.EncodeToString(sum[:])[:keyHash]
}
