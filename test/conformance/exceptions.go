package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/response"
	"github.com/ostiary/ostiary/test/exceptioncases"
)

// Exception is an exception from the first policy of a case, unless it names another one.
type Exception struct {
	Namespace string `json:"namespace"`
	// EndsAfter is the time from its creation to its end, in s; 0 without one.
	EndsAfter int64 `json:"endsAfter,omitempty"`

	v1alpha1.WebhookPolicyExceptionSpec `json:",inline"`
}

// except gives a generated case exceptions. The native policies have them as expressions, of which mutations would need one that is
// evaluated before those of matchConditions.
func (a author) except(c *Case, t target) {
	policy := &c.Policies[0]
	if len(policy.Mutations) > 0 && len(policy.MatchConditions) > 0 {
		return
	}
	policy.Exceptions = &v1alpha1.Exceptions{}
	if a.chance(3) {
		policy.Exceptions.MaxDurationSeconds = new(int64(12 * 3600))
	}
	for i := range policy.Validations {
		v := &policy.Validations[i]
		v.Name = fmt.Sprintf("v%d", i)
		v.Expression = "(" + v.Expression + ") && true" // of type bool, as both engines demand, also within another expression
	}
	resources := append(slices.Repeat([]string{t.resource}, 6), "others")
	for _, s := range t.subresources {
		resources = append(resources, t.resource+"/"+s)
	}
	namespaces := []string{"{ns}", "{ns}", "{ns}", "{ns}", "params", ""}
	if t.cluster {
		namespaces = []string{"", "", "", "{ns}"}
	}
	r := exceptioncases.Random{Rand: a.Rand, Vocabulary: exceptioncases.Vocabulary{
		Policies:    []string{"", "", "", "", "", "another"},
		Groups:      []string{t.group, t.group, t.group, t.group, t.group, "other.test"},
		Resources:   resources,
		Names:       []string{"made", t.stored, "m*", "made-*", "*e", "*", "other"},
		Validations: [][]string{{"*"}, {"*"}, {"*"}, {"v0"}, {"v0", "v1"}, {"v1", "v2"}, {"v7"}},
		Labels:      map[string][]string{"team": {"shop", "search"}, "app": {"web", "x"}},
	}}
	for range 2 + a.IntN(4) {
		hour := int64(3600)
		c.Exceptions = append(c.Exceptions, Exception{
			Namespace: pick(a, namespaces...), EndsAfter: pick(a, 0, 6*hour, 6*hour, 24*hour, -hour), WebhookPolicyExceptionSpec: r.Spec(),
		})
	}
}

// placeExceptions sets the exceptions of a case, as they are in the cluster, and the native policies that decide as the policies and
// the exceptions do together.
func (p *placed) placeExceptions(number int) {
	p.native = p.policies
	if len(p.Exceptions) == 0 {
		return
	}
	for i, x := range p.Exceptions {
		x.PolicyName = cmp.Or(x.PolicyName, p.policies[0].Name)
		if x.EndsAfter != 0 {
			x.ExpirationTime = new(metav1.NewTime(p.installed.Add(time.Duration(x.EndsAfter) * time.Second).Truncate(time.Second)))
		}
		object := &v1alpha1.WebhookPolicyException{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicyException"},
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("e%05d-%d", number, i), Namespace: x.Namespace, CreationTimestamp: metav1.NewTime(p.installed),
			},
			Spec: x.WebhookPolicyExceptionSpec,
		}
		if x.Namespace == "" {
			object.Kind = "ClusterWebhookPolicyException"
		}
		p.exceptions = append(p.exceptions, object)
	}
	native := p.policies[0].DeepCopy()
	for i := range native.Spec.Validations {
		v := &native.Spec.Validations[i]
		v.Message = cmp.Or(v.Message, "failed expression: "+strings.TrimSpace(v.Expression)) // otherwise that of the next line
		// A variable keeps messages below the length at which API servers truncate warnings.
		excepted := admissionregistrationv1.Variable{Name: fmt.Sprintf("x%d", i), Expression: p.excepts(v.Name)}
		native.Spec.Variables = append(native.Spec.Variables, excepted)
		// In this form, errors are not excepted, and what is no boolean is false, as without exceptions.
		v.Expression = fmt.Sprintf("[%s].exists(e, e == true || variables.x%d)", v.Expression, i)
	}
	native.Annotations = map[string]string{mutatesUnless: p.excepts("")}
	p.native = append([]*v1alpha1.WebhookPolicy{native}, p.policies[1:]...)
}

// mutatesUnless is the annotation of a native policy with the expression for objects that it does not mutate.
const mutatesUnless = "mutates-unless"

// excepts returns the expression that is true if an exception lets a validation pass, or with "" the mutations.
func (p *placed) excepts(validation string) string {
	policy := p.policies[0]
	of := exceptioncases.Decided{Policy: policy.Name, Validation: validation, Now: p.installed}
	if longest := policy.Spec.Exceptions.MaxDurationSeconds; longest != nil {
		of.Longest = *longest
	}
	all := make([]string, len(p.exceptions))
	for i, x := range p.exceptions {
		all[i] = of.Expression(x)
	}
	return "(" + strings.Join(all, " || ") + ")"
}

// notExcepted returns the match condition of a mutating policy with exceptions.
func notExcepted(p *v1alpha1.WebhookPolicy) []admissionregistrationv1.MatchCondition {
	if p.Annotations[mutatesUnless] == "" {
		return nil
	}
	return []admissionregistrationv1.MatchCondition{{Name: "not-excepted", Expression: "!" + p.Annotations[mutatesUnless]}}
}

// createExceptions creates the exceptions of a batch, and adds them to what is installed.
func (e *engine) createExceptions(ctx context.Context, batch []*placed, done *installed) error {
	var all []*unstructured.Unstructured
	for _, p := range batch {
		for _, x := range p.exceptions {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(x)
			if err != nil {
				return fmt.Errorf("converting an exception: %w", err)
			}
			unstructured.RemoveNestedField(content, "status")
			all = append(all, &unstructured.Unstructured{Object: content})
		}
	}
	done.objects = append(done.objects, all...)
	if err := e.createAll(ctx, all); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, x := range all {
		if err := e.awaitException(ctx, x, done); err != nil {
			return err
		}
	}
	return nil
}

// awaitException waits until the replica has loaded an exception. Its status says that, and why it has no effect.
func (e *engine) awaitException(ctx context.Context, x *unstructured.Unstructured, done *installed) error {
	for {
		stored, err := e.client(x).Get(ctx, x.GetName(), metav1.GetOptions{})
		var got v1alpha1.WebhookPolicyException
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &got)
		}
		if err != nil {
			return fmt.Errorf("reading the exception %s: %w", x.GetName(), err)
		}
		active := apimeta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionActive)
		waits := []string{"NotLoaded", "NotGuarded"}
		if got.Spec.PolicyName != "another" && done.refused[got.Spec.PolicyName] == "" {
			waits = append(waits, "PolicyNotFound")
		}
		if active != nil && !slices.Contains(waits, active.Reason) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the exception %s, last status %v: %w", x.GetName(), active, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

const exceptedSuffix = ourDomain + "/excepted"

// nameOfValidation begins causes and messages.
var nameOfValidation = regexp.MustCompile(`\bv\d(?:: | object )`)

// takeExcepted takes out of two answers to a case with exceptions what only one engine can have: the names of validations and the audit
// annotations that name exceptions in ours, and the exceptions in the expressions of the native one. It returns what the annotations name.
func (p *placed) takeExcepted(c *comparison) (values []string) {
	if len(p.exceptions) == 0 {
		return nil
	}
	c.native.everyText(p.withoutExceptions)
	c.ours.everyText(func(s string) string { return nameOfValidation.ReplaceAllString(s, "") })
	slices.Sort(c.native.Causes)
	slices.Sort(c.ours.Causes)
	slices.Sort(c.ours.Warnings)
	c.ours.Warnings = slices.Compact(c.ours.Warnings) // API servers leave out what is repeated
	for key, value := range c.ours.Annotations {
		if strings.HasSuffix(key, exceptedSuffix) {
			values = append(values, strings.Split(value, response.Separator)...)
			delete(c.ours.Annotations, key)
		}
	}
	return values
}

// everyText applies a function to every text that an engine writes, also to those that are not decoded yet.
func (a *Answer) everyText(f func(string) string) {
	a.texts(f)
	for key, value := range a.Annotations {
		a.Annotations[key] = f(value)
	}
}

// withoutExceptions replaces the expressions of the native policy, as texts and in JSON, by those of the policy.
func (p *placed) withoutExceptions(text string) string {
	for i, v := range p.policies[0].Spec.Validations {
		with := p.native[0].Spec.Validations[i].Expression
		text = strings.ReplaceAll(text, with, v.Expression)
		text = strings.ReplaceAll(text, quoted(with), quoted(v.Expression))
	}
	return text
}

// quoted is a text in JSON.
func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		return text
	}
	return strings.Trim(string(out), `"`)
}

// wrongExceptions returns the first value of the annotation that names an exception without an effect on what it names.
func (p *placed) wrongExceptions(values []string) string {
	for _, value := range values {
		words := strings.Fields(value) // "policy validation by exception"
		if len(words) != 4 || !slices.ContainsFunc(p.exceptions, func(x *v1alpha1.WebhookPolicyException) bool {
			only := *p
			only.exceptions = []*v1alpha1.WebhookPolicyException{x}
			what := words[1]
			if what == "spec.mutations" {
				what = ""
			}
			return strings.TrimPrefix(x.Namespace+"/"+x.Name, "/") == words[3] && only.excepts(what) != "(false)"
		}) {
			return fmt.Sprintf("the audit annotation names %q, which has no such effect", value)
		}
	}
	return ""
}
