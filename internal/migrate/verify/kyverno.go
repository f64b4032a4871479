package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// kyvernoTest is the part of a Test of Kyverno that this command evaluates.
type kyvernoTest struct {
	Policies       []string        `json:"policies"`
	Exceptions     []string        `json:"exceptions"`
	Resources      []string        `json:"resources"`
	ParamResources []string        `json:"paramResources"`
	Variables      string          `json:"variables"`
	UserInfo       string          `json:"userinfo"`
	Values         json.RawMessage `json:"values"`
	Context        string          `json:"context"`
	Results        []kyvernoResult `json:"results"`
	Checks         json.RawMessage `json:"checks"`
	payloads
}

// payloads are inputs that are no requests.
type payloads struct {
	JSONPayload   string   `json:"jsonPayload"`
	JSONPayloads  []string `json:"jsonPayloads"`
	HTTPPayloads  []string `json:"httpPayloads"`
	EnvoyPayloads []string `json:"envoyPayloads"`
}

func (p *payloads) given() bool {
	return p.JSONPayload != "" || len(p.JSONPayloads)+len(p.HTTPPayloads)+len(p.EnvoyPayloads) > 0
}

type kyvernoResult struct {
	Policy           string   `json:"policy"`
	Rule             string   `json:"rule"`
	Kind             string   `json:"kind"`
	Resource         string   `json:"resource"`
	Resources        []string `json:"resources"`
	Namespace        string   `json:"namespace"`
	Operation        string   `json:"operation"`
	Result           string   `json:"result"`
	Status           string   `json:"status"`
	PatchedResource  string   `json:"patchedResource"`
	PatchedResources string   `json:"patchedResources"`
	// ResourceSpecs name objects besides Resources.
	ResourceSpecs []resourceSpec `json:"resourceSpecs"`
}

type resourceSpec struct {
	Group     string `json:"group"`
	Version   string `json:"version"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// kyvernoValues are the values of a Test: those of the request and of Namespaces.
type kyvernoValues struct {
	GlobalValues map[string]any `json:"globalValues"`
	Policies     []struct {
		Name      string        `json:"name"`
		Rules     []namedValues `json:"rules"`
		Resources []namedValues `json:"resources"`
	} `json:"policies"`
	NamespaceSelector []struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"namespaceSelector"`
	Namespaces []corev1.Namespace `json:"namespaces"`
}

// namedValues are the values for a rule or an object.
type namedValues struct {
	Name   string         `json:"name"`
	Values map[string]any `json:"values"`
}

// userInfo is the user of a Test.
type userInfo struct {
	UserInfo struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	} `json:"userInfo"`
	Roles        []string `json:"roles"`
	ClusterRoles []string `json:"clusterRoles"`
}

// kyvernoInputs are what the assertions of a Test share.
type kyvernoInputs struct {
	test        kyvernoTest
	resources   []load.Object
	params      []load.Object
	values      kyvernoValues
	user        userInfo
	conversions []conversion.Conversion
}

// kyverno returns the assertions of a Test.
func (f *testReader) kyverno(ctx context.Context) ([]assertion, error) {
	in := &kyvernoInputs{}
	if err := f.test.Read(&in.test); err != nil {
		return nil, err
	}
	var err error
	if in.resources, err = f.files(ctx, "resources", in.test.Resources); err != nil {
		return nil, err
	}
	if in.params, err = f.files(ctx, "paramResources", in.test.ParamResources); err != nil {
		return nil, err
	}
	if err := f.kyvernoValues(ctx, in); err != nil {
		return nil, err
	}
	in.conversions = f.conversionsOf(in.test.Policies)
	var out []assertion
	for i := range in.test.Results {
		found, err := f.kyvernoResult(ctx, in, i)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	if len(in.test.Checks) > 0 && string(in.test.Checks) != "null" {
		out = append(out, assertion{
			source:  f.test,
			field:   "checks",
			text:    "checks",
			skipped: "this command does not evaluate assertion trees",
		})
	}
	return out, nil
}

func (f *testReader) kyvernoValues(ctx context.Context, in *kyvernoInputs) error {
	if in.test.Variables != "" {
		objects, err := f.file(ctx, "variables", in.test.Variables)
		if err != nil {
			return err
		}
		for i := range objects {
			var read struct {
				kyvernoValues
				Spec *kyvernoValues `json:"spec"`
			}
			if err := objects[i].Read(&read); err != nil {
				return err
			}
			if in.values = read.kyvernoValues; read.Spec != nil {
				in.values = *read.Spec
			}
		}
	}
	if len(in.test.Values) > 0 {
		if err := json.Unmarshal(in.test.Values, &in.values); err != nil {
			return f.test.Errorf("values", "%v", err)
		}
	}
	if in.test.UserInfo == "" {
		return nil
	}
	objects, err := f.file(ctx, "userinfo", in.test.UserInfo)
	if err != nil {
		return err
	}
	for i := range objects {
		var read struct {
			userInfo
			RequestInfo *userInfo `json:"requestInfo"`
		}
		if err := objects[i].Read(&read); err != nil {
			return err
		}
		if in.user = read.userInfo; read.RequestInfo != nil {
			in.user = *read.RequestInfo
		}
	}
	return nil
}

// kyvernoResult returns the assertions of a result: one for each object.
func (f *testReader) kyvernoResult(ctx context.Context, in *kyvernoInputs, index int) ([]assertion, error) {
	r := &in.test.Results[index]
	field := fmt.Sprintf("results[%d]", index)
	names := r.Resources
	if r.Resource != "" {
		names = append(names, r.Resource)
	}
	policy, policies := in.policies(r.Policy)
	rule := ruleOf(r, policies)
	var out []assertion
	for _, o := range kyvernoObjects(in.resources, r, names) {
		a := assertion{
			source:      f.test,
			field:       field,
			object:      o,
			objects:     in.params,
			outputs:     outputsOf(policies, rule),
			validations: validationsOf(policies, rule),
		}
		result := r.Result
		if result == "" {
			result = r.Status
		}
		a.text = strings.Join(strings.Fields(fmt.Sprintf("%s %s %s: %s", r.Policy, r.Rule, o, result)), " ")
		switch result {
		case "pass", "skip":
		case "fail", "warn":
			a.fails = true
		default:
			a.skipped = fmt.Sprintf("the result %q is no decision", result)
		}
		switch {
		case len(a.outputs) == 0:
			a.skipped = withoutResult(r.Policy, rule, policies)
		case in.test.Context != "":
			a.skipped = "the test has a context for functions of Kyverno"
		}
		if err := f.kyvernoPatched(ctx, &a, policies, r, field); err != nil {
			return nil, err
		}
		values := in.values.valuesFor(policy, rule, o.Metadata.Name)
		if r.Operation != "" {
			values["request.operation"] = r.Operation
		}
		if err := in.request(&a, values); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		out = append(out, assertion{
			source:  f.test,
			field:   field,
			text:    r.Policy + " " + strings.Join(names, ", "),
			skipped: in.withoutObject(r, names),
		})
	}
	return out, nil
}

// policies returns the policies that a result names, as "name" or "namespace/name".
func (in *kyvernoInputs) policies(name string) (policy string, found []conversion.Conversion) {
	namespace, policy, qualified := strings.Cut(name, "/")
	if !qualified {
		policy, namespace = name, ""
	}
	for _, c := range in.conversions {
		m := &c.Source.Metadata
		if c.Source.Kind != kindException && m.Name == policy && (namespace == "" || m.Namespace == namespace) {
			found = append(found, c)
		}
	}
	return policy, found
}

// kyvernoObjects returns the objects that a result names.
func kyvernoObjects(resources []load.Object, r *kyvernoResult, names []string) (out []*load.Object) {
	for i := range resources {
		o := &resources[i]
		if r.Kind != "" && kindOf(r.Kind) != o.Kind || r.Namespace != "" && o.Metadata.Namespace != "" &&
			o.Metadata.Namespace != r.Namespace {
			continue
		}
		if r.names(names, o) {
			out = append(out, o)
		}
	}
	return out
}

// names reports whether a result names an object; one without names is about all objects.
func (r *kyvernoResult) names(names []string, o *load.Object) bool {
	byName := slices.ContainsFunc(names, func(n string) bool {
		parts := strings.Split(n, "/")
		last := parts[len(parts)-1]
		isNamespaced := len(parts) > 1 && o.Metadata.Namespace != ""
		return last == o.Metadata.Name &&
			(!isNamespaced || slices.Contains(parts[:len(parts)-1], o.Metadata.Namespace))
	})
	return len(names)+len(r.ResourceSpecs) == 0 || byName ||
		slices.ContainsFunc(r.ResourceSpecs, func(s resourceSpec) bool {
			return s.Name == o.Metadata.Name && s.Namespace == o.Metadata.Namespace &&
				o.APIVersion == schema.GroupVersion{Group: s.Group, Version: s.Version}.String()
		})
}

// kindOf returns the last part of "group/version/kind".
func kindOf(kind string) string { return kind[strings.LastIndex(kind, "/")+1:] }

// kyvernoPatched finds the object after mutations.
func (f *testReader) kyvernoPatched(
	ctx context.Context,
	a *assertion,
	policies []conversion.Conversion,
	r *kyvernoResult,
	field string,
) error {
	name := r.PatchedResource
	if name == "" {
		name = r.PatchedResources
	}
	if name == "" || len(a.outputs) == 0 || !a.outputs[0].Policy().Spec.Mutates() {
		return nil
	}
	a.mutations(policies)
	objects, err := f.file(ctx, field+".patchedResource", name)
	if err != nil {
		return err
	}
	a.mutates = true
	for i := range objects {
		if o := &objects[i]; o.Kind == a.object.Kind && o.Metadata.Name == a.object.Metadata.Name &&
			!sameJSON(o.Raw, a.object.Raw) {
			a.patched = o
		}
	}
	return a.defaultNamespace()
}

// mutations adds the other mutations of the policies: the wanted object is that after all
// of them.
func (a *assertion) mutations(policies []conversion.Conversion) {
	for _, c := range policies {
		for _, row := range c.Rows {
			switch {
			case row.Outcome == conversion.LeftOut:
				a.skipped = "a rule of the policy is left out, and the wanted object is that after all of its rules"
			case row.Output != nil && row.Output.Policy() != nil && row.Output.Policy().Spec.Mutates() &&
				!slices.Contains(a.outputs, row.Output):
				a.outputs = append(a.outputs, row.Output)
			}
		}
	}
}

// defaultNamespace adds the namespace to the wanted object that a request adds to an object
// without one.
func (a *assertion) defaultNamespace() error {
	if a.patched == nil || a.object.Metadata.Namespace != "" || a.patched.Metadata.Namespace != "" {
		return nil
	}
	var want map[string]any
	if err := a.patched.Read(&want); err != nil {
		return err
	}
	metadata, ok := want["metadata"].(map[string]any)
	if !ok {
		return nil
	}
	metadata["namespace"] = metav1.NamespaceDefault
	raw, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("encoding the wanted object: %w", err)
	}
	a.patched, err = load.FromJSON(a.patched.At("").String(), raw)
	return err
}
