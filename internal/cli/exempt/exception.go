package exempt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/podtemplate"
)

// target is an object with its resource.
type target struct {
	*unstructured.Unstructured
	resource schema.GroupResource
}

// terms say what exceptions permit, and how long.
type terms struct {
	policy      string
	spec        *v1alpha1.WebhookPolicySpec // of the policy
	validations []string
	reason      string
	end         *metav1.Time
}

// templateLabels returns the labels of the Pods that the controller of a workload creates; nil for
// an object without a template, and for one without labels.
func (t *target) templateLabels() map[string]string {
	path := []string{"spec", "template"}
	for _, k := range v1alpha1.DefaultPodTemplateKinds() {
		if k.Group == t.resource.Group && k.Resource == t.resource.Resource {
			path = strings.Split(k.TemplatePath, ".")
		}
	}
	template, err := podtemplate.At(t.Unstructured, path)
	if err != nil || template == nil {
		return nil
	}
	labels, _, _ := unstructured.NestedStringMap(template, "metadata", "labels") // an API server has checked them
	return labels
}

// entries select the object by its name, and the Pods of a workload by the labels of its template.
// Those that the policy never matches are left out.
func (t *target) entries(policy *v1alpha1.WebhookPolicySpec) []v1alpha1.ExceptionMatch {
	out := []v1alpha1.ExceptionMatch{{Group: t.resource.Group, Resources: []string{t.resource.Resource}, Names: []string{t.GetName()}}}
	if labels := t.templateLabels(); len(labels) > 0 {
		out = append(out, bySelector(schema.GroupResource{Resource: "pods"}, labels))
	}
	return slices.DeleteFunc(out, func(m v1alpha1.ExceptionMatch) bool {
		return !exceptions.MayMatch(policy, m.Group, m.Resources[0])
	})
}

func bySelector(resource schema.GroupResource, labels map[string]string) v1alpha1.ExceptionMatch {
	return v1alpha1.ExceptionMatch{
		Group: resource.Group, Resources: []string{resource.Resource}, ObjectSelector: &metav1.LabelSelector{MatchLabels: labels},
	}
}

// exception returns the exception for a target; more are entries besides its own.
func (t *target) exception(of terms, more ...v1alpha1.ExceptionMatch) v1alpha1.Exception {
	spec := v1alpha1.WebhookPolicyExceptionSpec{
		PolicyName: of.policy, Validations: of.validations, Match: append(t.entries(of.spec), more...), Reason: of.reason, ExpirationTime: of.end,
	}
	metadata := metav1.ObjectMeta{Name: nameOf(of.policy, strings.ToLower(t.GetKind()), t.GetName()), Namespace: t.GetNamespace()}
	kind := metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicyException"}
	if metadata.Namespace == "" {
		kind.Kind = "ClusterWebhookPolicyException"
		return &v1alpha1.ClusterWebhookPolicyException{TypeMeta: kind, ObjectMeta: metadata, Spec: spec}
	}
	return &v1alpha1.WebhookPolicyException{TypeMeta: kind, ObjectMeta: metadata, Spec: spec}
}

// maxName is the longest name of an exception.
const maxName = 253

var unusable = regexp.MustCompile(`[^a-z0-9.-]+`)

// nameOf returns a name that differs between objects.
func nameOf(parts ...string) string {
	text := strings.Join(parts, "-")
	name := strings.Trim(unusable.ReplaceAllString(text, "-"), "-.")
	if name == text && len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(text))
	hash := hex.EncodeToString(sum[:5])
	return strings.TrimRight(name[:min(len(name), maxName-len(hash)-1)], "-.") + "-" + hash
}

// check returns why an exception would have no effect.
func check(x v1alpha1.Exception, policy *v1alpha1.WebhookPolicySpec, now time.Time) error {
	if len(x.GetSpec().Match) == 0 {
		return fmt.Errorf("the rules of the policy %q match neither the object nor its Pods: name another policy", x.GetSpec().PolicyName)
	}
	if reason, message := exceptions.NewEntry(x).State(policy, now, nil); reason != "" {
		return fmt.Errorf("the exception would have no effect: %s", message)
	}
	return nil
}

// manifest returns an exception without what API servers write.
func manifest(x v1alpha1.Exception) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(x)
	if err != nil {
		return nil, fmt.Errorf("encoding the exception: %w", err)
	}
	out := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &out.Object); err != nil {
		return nil, fmt.Errorf("encoding the exception: %w", err)
	}
	unstructured.RemoveNestedField(out.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(out.Object, "status")
	return out, nil
}
