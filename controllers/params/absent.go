package params

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/nearest"
)

// maxReads bounds the objects that are read for the warnings about one policy.
const maxReads = 10

// Absent returns warnings about params that a policy names and that do not exist, on a
// server that serves some resources. An object that cannot be read in time, or whose
// namespace is that of each request, causes none.
func (s *Store) Absent(
	ctx context.Context, p *v1alpha1.WebhookPolicy, served map[schema.GroupVersion][]metav1.APIResource,
) []advice.Warning {
	if p.Spec.ParamKind == nil || served == nil {
		return nil
	}
	gvk, err := parse(p.Spec.ParamKind)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(served[gvk.GroupVersion()], func(r metav1.APIResource) bool { return r.Kind == gvk.Kind && !strings.Contains(r.Name, "/") })
	if i < 0 {
		return unknownKind(gvk, served)
	}
	resource := served[gvk.GroupVersion()][i]
	client := s.options.Client.Resource(gvk.GroupVersion().WithResource(resource.Name))
	var out []advice.Warning
	for i, b := range p.Spec.Bindings[:min(len(p.Spec.Bindings), maxReads)] {
		at := field.NewPath("spec", "bindings").Index(i).Child("paramRef")
		if ref := b.ParamRef; ref != nil && refuses(ref) && (!resource.Namespaced || ref.Namespace != "") {
			if absent := describeAbsent(ctx, client, gvk.Kind, ref); absent != "" {
				text := fmt.Sprintf("%s does, %s", absent, effect(&p.Spec))
				out = append(out, advice.Warning{Field: at.String(), Text: text})
			}
		}
	}
	return out
}

func refuses(ref *admissionregistrationv1.ParamRef) bool {
	return ref.ParameterNotFoundAction == nil || *ref.ParameterNotFoundAction == admissionregistrationv1.DenyAction
}

// effect says what happens to requests while a param is absent.
func effect(spec *v1alpha1.WebhookPolicySpec) string {
	if spec.EffectiveFailurePolicy() == admissionregistrationv1.Ignore {
		return "the binding has no effect"
	}
	return "every request is denied"
}

// NotFound says that no object exists that a paramRef selects for any request. It returns "" if
// there is one, or if the cache cannot show that there is none.
func (s *Store) NotFound(kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef) string {
	watches, err := s.watchesOf(kind, []*admissionregistrationv1.ParamRef{ref})
	if err != nil || len(watches) == 0 { // State returns the error
		return ""
	}
	k := watches[0].known.Load()
	if k == nil {
		return ""
	}
	of, selector := scopeOf(ref), labels.Everything()
	if of.selector != nil {
		if selector, err = metav1.LabelSelectorAsSelector(of.selector); err != nil {
			return ""
		}
	}
	isNamespaced := k.scope == meta.RESTScopeNamespace
	if of.namespace != "" && !isNamespaced || k.objects.mayContain(of, selector) {
		return "" // a namespace for a kind without them is another error
	}
	if of.name != "" && of.namespace == "" && isNamespaced {
		return fmt.Sprintf("no namespace has a %s %s", kind.Kind, of.name)
	}
	return describeNotFound(kind.Kind, ref)
}

// describeNotFound says that no object exists that a paramRef selects.
func describeNotFound(kind string, ref *admissionregistrationv1.ParamRef) string {
	switch {
	case ref.Name != "" && ref.Namespace != "":
		return fmt.Sprintf("%s %s/%s does not exist", kind, ref.Namespace, ref.Name)
	case ref.Name != "":
		return fmt.Sprintf("%s %s does not exist", kind, ref.Name)
	}
	return fmt.Sprintf("no %s %smatches the selector %q", kind, inNamespace(ref.Namespace), metav1.FormatLabelSelector(ref.Selector))
}

// describeAbsent begins a sentence. It is empty if the object exists, or if that is not
// known.
func describeAbsent(ctx context.Context, client dynamic.NamespaceableResourceInterface, kind string, ref *admissionregistrationv1.ParamRef) string {
	var from dynamic.ResourceInterface = client
	if ref.Namespace != "" {
		from = client.Namespace(ref.Namespace)
	}
	if ref.Name != "" {
		if _, err := from.Get(ctx, ref.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return describeNotFound(kind, ref) + ": until it"
		}
		return ""
	}
	selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
	if err != nil {
		return ""
	}
	list, err := from.List(ctx, metav1.ListOptions{LabelSelector: selector.String(), Limit: 1})
	if err != nil || len(list.Items) > 0 {
		return ""
	}
	return describeNotFound(kind, ref) + ": until one"
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return "in namespace " + namespace + " "
}

// unknownKind warns of a kind that is not served. A version whose resources are not
// known may have it.
func unknownKind(gvk schema.GroupVersionKind, served map[schema.GroupVersion][]metav1.APIResource) []advice.Warning {
	if list, ok := served[gvk.GroupVersion()]; ok && list == nil {
		return nil
	}
	hint := ": install it, or correct spec.paramKind"
	if similar := nearest.Name(gvk.Kind, kinds(served[gvk.GroupVersion()])); similar != "" {
		hint = ", did you mean " + similar + "?"
	} else if versions := versionsWith(gvk.Kind, served); versions != "" {
		hint = ": it is in " + versions
	}
	text := fmt.Sprintf("the API server has no kind %s in %s%s", gvk.Kind, gvk.GroupVersion(), hint)
	return []advice.Warning{{Field: "spec.paramKind", Text: text}}
}

func kinds(list []metav1.APIResource) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, r := range list {
			if !strings.Contains(r.Name, "/") && !yield(r.Kind) {
				return
			}
		}
	}
}

func versionsWith(kind string, served map[schema.GroupVersion][]metav1.APIResource) string {
	var out []string
	for gv, list := range served {
		if slices.Contains(slices.Collect(kinds(list)), kind) {
			out = append(out, gv.String())
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
