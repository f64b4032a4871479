package oracles

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/load"
)

// tableCase is a case of the tests of the converter of classic policies.
type tableCase struct {
	Name   string   `json:"name"`
	Kinds  []string `json:"kinds"`
	Rule   object   `json:"rule"`
	Spec   object   `json:"spec"`
	Policy string   `json:"policy"`
	World  string   `json:"world"`
	Allow  []object `json:"allow"`
	Deny   []object `json:"deny"`
	Mutate []object `json:"mutate"`
}

// TableCases returns the policies of the converter's own tests, whose expectations were
// written by the authors of the converter. The objects of their requests are those of the case.
func TableCases(ctx context.Context, folder string) (out []*Case, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", folder, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the cases: %w", err)
		}
		var cases []tableCase
		if err := yaml.Unmarshal(text, &cases); err != nil {
			return nil, fmt.Errorf("reading the cases of %s: %w", file, err)
		}
		for i := range cases {
			made, err := cases[i].read(ctx, filepath.Base(file))
			if err != nil {
				return nil, err
			}
			out = append(out, made)
		}
	}
	return out, nil
}

func (c *tableCase) read(ctx context.Context, file string) (*Case, error) {
	out := &Case{Name: file + ", " + c.Name}
	text := c.Policy + "\n---\n" + c.World
	objects, err := objectsOf(ctx, file, text)
	if err != nil {
		return nil, err
	}
	if c.Policy == "" {
		objects = append([]object{c.policy()}, objects...)
	}
	for _, o := range objects {
		enforce(o)
	}
	out.Objects = objects
	out.Kinds = kindsOf(objects)
	for _, r := range slices.Concat(c.Allow, c.Deny, c.Mutate) {
		if r["subresource"] != nil {
			continue // its object is of a kind that has no definition
		}
		example := r
		for _, key := range []string{"object", "old"} {
			if o, ok := r[key].(object); ok {
				example = o
			}
		}
		if len(example) > 0 {
			out.Examples = append(out.Examples, completed(example))
		}
	}
	return out, nil
}

func (c *tableCase) policy() object {
	rule := object{"name": "rule"}
	kinds := c.Kinds
	if kinds == nil {
		kinds = []string{"Pod"}
	}
	rule["match"] = object{"any": list{object{"resources": object{"kinds": anys(kinds)}}}}
	for key, value := range c.Rule {
		rule[key] = value
	}
	v := asObject(rule["validate"])
	if v != nil && v["allowExistingViolations"] == nil && v["cel"] == nil && v["podSecurity"] == nil {
		v["allowExistingViolations"] = false
	}
	spec := object{"rules": list{rule}}
	for key, value := range c.Spec {
		spec[key] = value
	}
	return object{
		"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "spec": spec,
		"metadata": object{
			"name": "policy", "annotations": object{"pod-policies.kyverno.io/autogen-controllers": "none"},
		},
	}
}

// completed returns an object of a case with what the case leaves out.
func completed(o object) object {
	base := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "a"}}
	out := asObject(merged(base, o))
	if kind := out["kind"]; kind != "Namespace" && kind != "PersistentVolume" && kind != "ClusterRole" {
		out = asObject(merged(object{"metadata": object{"namespace": "default"}}, out))
	}
	return out
}

// PolicyFiles returns each policy of some files as a case, with the exceptions and ConfigMaps
// of the same file.
func PolicyFiles(ctx context.Context, files ...string) (out []*Case, err error) {
	for _, file := range files {
		objects, err := objectFile(ctx, file)
		if err != nil {
			return nil, err
		}
		var policies, others []object
		for _, o := range objects {
			enforce(o)
			kind, _ := o["kind"].(string)
			if strings.HasSuffix(kind, "Policy") {
				policies = append(policies, o)
			} else {
				others = append(others, o)
			}
		}
		for _, p := range policies {
			name := valueAt(p, path{"metadata", "name"})
			out = append(out, &Case{
				Name:    fmt.Sprintf("%s, %v", file, name),
				Objects: append([]object{p}, concerning(others, fmt.Sprint(name))...),
				Kinds:   kindsOf([]object{p}),
			})
		}
	}
	return out, nil
}

// concerning returns the objects that a policy can read: exceptions name it.
func concerning(objects []object, policy string) (out []object) {
	for _, o := range objects {
		c := Case{Objects: []object{o}}
		if o["kind"] != "PolicyException" || strings.Contains(c.text(), `"`+policy+`"`) {
			out = append(out, o)
		}
	}
	return out
}

func objectFile(ctx context.Context, file string) ([]object, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading objects: %w", err)
	}
	return objectsOf(ctx, file, string(text))
}

func objectsOf(ctx context.Context, name, text string) (out []object, err error) {
	if strings.Trim(text, "\n- ") == "" {
		return nil, nil
	}
	read, err := load.Text(ctx, name, []byte(text))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	for i := range read {
		var o object
		if err := json.Unmarshal(read[i].Raw, &o); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", name, err)
		}
		out = append(out, o)
	}
	return out, nil
}

// enforce makes a policy of Kyverno deny requests, so that its failures are seen.
func enforce(policy object) {
	spec := asObject(policy["spec"])
	if spec == nil {
		return
	}
	if policy["apiVersion"] != "kyverno.io/v1" && policy["apiVersion"] != "kyverno.io/v2beta1" {
		if spec["validationActions"] != nil {
			spec["validationActions"] = list{"Deny"}
		}
		return
	}
	if policy["kind"] == "PolicyException" {
		return
	}
	delete(spec, "validationFailureActionOverrides")
	spec["validationFailureAction"] = "Enforce"
	rules, _ := spec["rules"].(list)
	for _, r := range rules {
		if v := asObject(asObject(r)["validate"]); v != nil {
			delete(v, "failureActionOverrides")
			v["failureAction"] = "Enforce"
		}
	}
}

// kindsOf returns the kinds that policies name.
func kindsOf(policies []object) []string {
	var named []string
	for _, p := range policies {
		named = append(named, namesBelow(p, "kinds")...)
		for _, resource := range namesBelow(p, "resources") {
			named = append(named, strings.TrimSuffix(resource, "s"))
		}
	}
	known := append([]string{
		"Pod", "Service", "ConfigMap", "Secret", "Namespace", "ServiceAccount", "PersistentVolumeClaim", "Ingress",
		"NetworkPolicy", "Role", "ClusterRole", "RoleBinding",
	}, sortedKeys(workloads())...)
	var out []string
	for _, kind := range known {
		if slices.ContainsFunc(named, func(n string) bool {
			n = n[strings.LastIndex(n, "/")+1:]
			return n == "*" || strings.EqualFold(n, kind)
		}) {
			out = append(out, kind)
		}
	}
	if slices.Contains(out, "Pod") && !slices.Contains(out, "Deployment") {
		out = append(out, "Deployment", "CronJob")
	}
	return out
}

// namesBelow returns the texts in all lists of a name.
func namesBelow(value any, name string) (out []string) {
	switch v := value.(type) {
	case object:
		for _, key := range sortedKeys(v) {
			if l, ok := v[key].(list); ok && key == name {
				for _, item := range l {
					if text, ok := item.(string); ok {
						out = append(out, text)
					}
				}
			}
			out = append(out, namesBelow(v[key], name)...)
		}
	case list:
		for _, item := range v {
			out = append(out, namesBelow(item, name)...)
		}
	}
	return out
}
