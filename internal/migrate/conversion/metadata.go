package conversion

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// AnnotationNative has what native policies and bindings contain and a WebhookPolicy does
// not, in JSON, for the way back.
const AnnotationNative = "admission.ostiary.dev/native"

// Metadata returns the part of metadata that an author writes.
func Metadata(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{Name: m.Name, Labels: maps.Clone(m.Labels), Annotations: maps.Clone(m.Annotations)}
	delete(out.Annotations, corev1.LastAppliedConfigAnnotation)
	if len(out.Annotations) == 0 {
		out.Annotations = nil
	}
	return out
}

// ConditionNames returns conditions with names that API servers accept, and a note for each
// name that changes. Names have no effect on decisions.
func ConditionNames(conditions []admissionregistrationv1.MatchCondition) (
	out []admissionregistrationv1.MatchCondition,
	notes []string,
) {
	for _, c := range conditions {
		if len(validation.IsQualifiedName(c.Name)) > 0 {
			name := Label(c.Name)
			notes = append(notes, fmt.Sprintf("the name %q of a condition becomes %q", c.Name, name))
			c.Name = name
		}
		out = append(out, c)
	}
	return out, notes
}

// maxLabel is the maximum length of a DNS label.
const maxLabel = validation.DNS1123LabelMaxLength

var notInLabels = regexp.MustCompile(`[^a-z0-9]+`)

// Label returns a name as a DNS label. Names that would become equal to others get a hash
// of the whole name.
func Label(name string) string {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := hex.EncodeToString(sum[:4])
	stem := strings.Trim(notInLabels.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if limit := maxLabel - len(suffix) - 1; len(stem) > limit {
		stem = strings.TrimRight(stem[:limit], "-")
	}
	return strings.TrimLeft(stem+"-"+suffix, "-")
}
