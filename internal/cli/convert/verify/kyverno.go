package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ostiary/ostiary/internal/cli/convert/conversion"
	"github.com/ostiary/ostiary/internal/cli/load"
	"github.com/ostiary/ostiary/internal/cli/policytest/v1alpha1"
)

// kyvernoTest is the part of a Test of Kyverno that this command evaluates.
type kyvernoTest struct {
	Policies       []string        `json:"policies"`
	Resources      []string        `json:"resources"`
	ParamResources []string        `json:"paramResources"`
	Variables      string          `json:"variables"`
	UserInfo       string          `json:"userinfo"`
	Values         json.RawMessage `json:"values"`
	Context        string          `json:"context"`
	Results        []kyvernoResult `json:"results"`
	Checks         json.RawMessage `json:"checks"`
}

type kyvernoResult struct {
	Policy           string   `json:"policy"`
	Rule             string   `json:"rule"`
	Kind             string   `json:"kind"`
	Resource         string   `json:"resource"`
	Resources        []string `json:"resources"`
	Namespace        string   `json:"namespace"`
	Result           string   `json:"result"`
	Status           string   `json:"status"`
	PatchedResource  string   `json:"patchedResource"`
	PatchedResources string   `json:"patchedResources"`
}

// values are the values of a Test: those of the request and of Namespaces.
type values struct {
	GlobalValues map[string]any `json:"globalValues"`
	Policies     []struct {
		Name      string `json:"name"`
		Resources []struct {
			Name   string         `json:"name"`
			Values map[string]any `json:"values"`
		} `json:"resources"`
	} `json:"policies"`
	NamespaceSelector []struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"namespaceSelector"`
	Namespaces []corev1.Namespace `json:"namespaces"`
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
	values      values
	user        userInfo
	conversions []conversion.Conversion
}

// kyverno returns the assertions of a Test.
func (f *finder) kyverno(ctx context.Context) ([]assertion, error) {
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
	in.conversions = f.of(in.test.Policies)
	var out []assertion
	for i := range in.test.Results {
		found, err := f.kyvernoResult(ctx, in, i)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	if len(in.test.Checks) > 0 && string(in.test.Checks) != "null" {
		out = append(out, assertion{source: f.test, field: "checks", text: "checks", skipped: "this command does not evaluate assertion trees"})
	}
	return out, nil
}

func (f *finder) kyvernoValues(ctx context.Context, in *kyvernoInputs) error {
	if in.test.Variables != "" {
		objects, err := f.file(ctx, "variables", in.test.Variables)
		if err != nil {
			return err
		}
		for i := range objects {
			var read struct {
				values
				Spec *values `json:"spec"`
			}
			if err := objects[i].Read(&read); err != nil {
				return err
			}
			if in.values = read.values; read.Spec != nil {
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
func (f *finder) kyvernoResult(ctx context.Context, in *kyvernoInputs, index int) ([]assertion, error) {
	r := &in.test.Results[index]
	field := fmt.Sprintf("results[%d]", index)
	names := r.Resources
	if r.Resource != "" {
		names = append(names, r.Resource)
	}
	var policies []conversion.Conversion
	namespace, policy, qualified := strings.Cut(r.Policy, "/")
	if !qualified {
		policy, namespace = r.Policy, ""
	}
	for _, c := range in.conversions {
		if c.Source.Metadata.Name == policy && (namespace == "" || c.Source.Metadata.Namespace == namespace) {
			policies = append(policies, c)
		}
	}
	var out []assertion
	for _, o := range kyvernoObjects(in.resources, r, names) {
		rule := strings.TrimPrefix(strings.TrimPrefix(r.Rule, "autogen-cronjob-"), "autogen-")
		a := assertion{source: f.test, field: field, object: o, objects: in.params, outputs: outputs(policies, rule), validations: validations(policies, rule)}
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
		if in.test.Context != "" {
			a.skipped = "the test has a context for functions of Kyverno"
		}
		if err := f.kyvernoPatched(ctx, &a, r, field); err != nil {
			return nil, err
		}
		a.change = in.request(&a, policy)
		out = append(out, a)
	}
	if len(out) == 0 {
		out = append(out, assertion{source: f.test, field: field, text: r.Policy + " " + strings.Join(names, ", "), skipped: "the files of the test have no such object"})
	}
	return out, nil
}

// kyvernoObjects returns the objects that a result names.
func kyvernoObjects(resources []load.Object, r *kyvernoResult, names []string) (out []*load.Object) {
	for i := range resources {
		o := &resources[i]
		if r.Kind != "" && kindOf(r.Kind) != o.Kind || r.Namespace != "" && o.Metadata.Namespace != "" && o.Metadata.Namespace != r.Namespace {
			continue
		}
		if len(names) == 0 || slices.ContainsFunc(names, func(n string) bool {
			parts := strings.Split(n, "/")
			last := parts[len(parts)-1]
			return last == o.Metadata.Name && (len(parts) == 1 || o.Metadata.Namespace == "" || slices.Contains(parts[:len(parts)-1], o.Metadata.Namespace))
		}) {
			out = append(out, o)
		}
	}
	return out
}

// kindOf returns the last part of "group/version/kind".
func kindOf(kind string) string { return kind[strings.LastIndex(kind, "/")+1:] }

// kyvernoPatched finds the object after mutations.
func (f *finder) kyvernoPatched(ctx context.Context, a *assertion, r *kyvernoResult, field string) error {
	name := r.PatchedResource
	if name == "" {
		name = r.PatchedResources
	}
	if name == "" || len(a.outputs) == 0 || !a.outputs[0].Policy().Spec.Mutates() {
		return nil
	}
	objects, err := f.file(ctx, field+".patchedResource", name)
	if err != nil {
		return err
	}
	a.mutates = true
	for i := range objects {
		if o := &objects[i]; o.Kind == a.object.Kind && o.Metadata.Name == a.object.Metadata.Name && !sameJSON(o.Raw, a.object.Raw) {
			a.patched = o
		}
	}
	return nil
}

// operation returns the operation for a policy and an object; empty is the default.
func (v *values) operation(policy, object string) string {
	const key = "request.operation"
	operation, _ := v.GlobalValues[key].(string)
	for _, p := range v.Policies {
		for _, r := range p.Resources {
			if own, ok := r.Values[key].(string); ok && p.Name == policy && r.Name == object {
				operation = own
			}
		}
	}
	return operation
}

// request returns a function that adds the request of the values to a case.
func (in *kyvernoInputs) request(a *assertion, policy string) func(*v1alpha1.Case) {
	object := a.object
	operation := in.values.operation(policy, object.Metadata.Name)
	switch operation {
	case "UPDATE":
		a.old = object
	case "DELETE":
		a.old, a.object = object, nil
	}
	if len(in.user.Roles)+len(in.user.ClusterRoles) > 0 {
		a.skipped = "the test has roles of a user, which requests do not contain"
	}
	namespace := object.Metadata.Namespace
	if namespace == "" {
		namespace = "default"
	}
	return func(c *v1alpha1.Case) {
		c.Operation, c.User, c.Groups = operation, in.user.UserInfo.Username, in.user.UserInfo.Groups
		for _, n := range in.values.NamespaceSelector {
			if n.Name == namespace && object.Kind != "Namespace" {
				c.Namespace = &v1alpha1.Namespace{Labels: n.Labels}
			}
		}
		for i := range in.values.Namespaces {
			if n := &in.values.Namespaces[i]; n.Name == namespace {
				c.Namespace = &v1alpha1.Namespace{Labels: n.Labels, Annotations: n.Annotations}
			}
		}
	}
}
