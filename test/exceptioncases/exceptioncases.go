// Package exceptioncases has a table of exceptions, objects and decisions, which every way to
// evaluate policies must give.
package exceptioncases

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

//go:embed cases.yaml
var table []byte

// Namespace is that of the objects.
const Namespace = "shop"

// Noon is when the requests are evaluated.
func Noon() time.Time { return time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC) }

// Case is a case of the table.
type Case struct {
	Name string `json:"name"`

	// Of the policy.
	Changes map[string]any `json:"policy"`
	// Params are the data of ConfigMaps, which have the name in the data and the label of: case.
	Params []map[string]string `json:"params"`

	// Of the request.
	Kind            string            `json:"kind"`
	Operation       string            `json:"operation"`
	Subresource     string            `json:"subresource"`
	Labels          map[string]string `json:"labels"`
	OldLabels       map[string]string `json:"oldLabels"`
	RequestName     string            `json:"requestName"`
	Nameless        bool              `json:"nameless"` // the request has no name
	GenerateName    bool              `json:"generateName"`
	ChangedTemplate bool              `json:"changedTemplate"`
	Mutating        bool              `json:"mutating"`   // it is about the mutating phase
	OnePhase        bool              `json:"onePhase"`   // the other phase would change the result
	BreakGlass      bool              `json:"breakGlass"` // the user may skip policies

	Given *[]Exception `json:"exceptions"`
	// Others is the number of further exceptions, of other objects, that are older.
	Others int `json:"others"`
	// Invalid says that an API server or lint rejects the exception.
	Invalid bool `json:"invalid"`

	// Want is the decision of the policy, and By the audit annotation.
	Want string `json:"want"`
	By   string `json:"by"`
	// Denies says that an error denies the request.
	Denies bool `json:"denies"`
	// Denied are the names of the validations that deny, if the others are excepted.
	Denied []string `json:"denied"`
	// DeniesPods says that the Pods of the template are denied.
	DeniesPods bool `json:"deniesPods"`
	// DiffersInAudit says that a stored object has no such request.
	DiffersInAudit bool `json:"differsInAudit"`
}

// Exception is an exception of a case.
type Exception struct {
	Name      string  `json:"name"`
	Namespace *string `json:"namespace"`
	Created   *int    `json:"created"` // in s after noon
	Uncreated bool    `json:"uncreated"`
	Ends      *int    `json:"ends"` // in s after noon

	v1alpha1.WebhookPolicyExceptionSpec `json:",inline"`
}

// All returns the cases.
func All() ([]Case, error) {
	var out []Case
	if err := yaml.UnmarshalStrict(table, &out); err != nil {
		return nil, fmt.Errorf("reading the table of exceptions: %w", err)
	}
	return out, nil
}

const defaultPolicy = `
exceptions: {}
matchConstraints:
  resourceRules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE, DELETE], resources: [pods, pods/ephemeralcontainers, namespaces]}
  - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE, DELETE], resources: [deployments]}
  - {apiGroups: [rbac.authorization.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE, DELETE], resources: [clusterroles]}
validations: [{name: has-team, expression: "has(object.metadata.labels) && 'team' in object.metadata.labels", message: no team}]
`

// Policy returns the policy.
func (c *Case) Policy() (*v1alpha1.WebhookPolicy, error) {
	spec := map[string]any{}
	if err := yaml.Unmarshal([]byte(defaultPolicy), &spec); err != nil {
		return nil, fmt.Errorf("reading the default policy: %w", err)
	}
	for field, value := range c.Changes {
		if spec[field] = value; value == nil {
			delete(spec, field)
		}
	}
	if c.Changes["plugin"] != nil {
		delete(spec, "matchConstraints") // a plugin has its own
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("writing the policy: %w", err)
	}
	p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.APIVersion, p.Kind = v1alpha1.GroupVersion.String(), "WebhookPolicy"
	if err := yaml.UnmarshalStrict(raw, &p.Spec); err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	return p, nil
}

// Exceptions returns the exceptions, as an API server at noon has them.
func (c *Case) Exceptions() (out []v1alpha1.Exception) {
	given := []Exception{{}}
	if c.Given != nil {
		given = *c.Given
	}
	for i := range c.Others {
		other := Exception{Name: fmt.Sprintf("other-%03d", i), Created: new(int)}
		*other.Created = -7200
		other.Match = []v1alpha1.ExceptionMatch{{Resources: []string{"pods"}, Names: []string{"other"}}}
		given = append(given, other)
	}
	for i := range given {
		out = append(out, given[i].object())
	}
	return out
}

func (x *Exception) object() v1alpha1.Exception {
	at := func(seconds *int, otherwise int) metav1.Time {
		if seconds != nil {
			otherwise = *seconds
		}
		return metav1.NewTime(Noon().Add(time.Duration(otherwise) * time.Second))
	}
	text := func(given, otherwise string) string {
		if given == "" {
			return otherwise
		}
		return given
	}
	spec := x.WebhookPolicyExceptionSpec
	spec.PolicyName, spec.Reason = text(spec.PolicyName, "p"), "a reason"
	if spec.Validations == nil {
		spec.Validations = []string{"has-team"}
	}
	if spec.Match == nil {
		spec.Match = []v1alpha1.ExceptionMatch{{Resources: []string{"pods"}}}
	}
	if x.Ends != nil {
		end := at(x.Ends, 0)
		spec.ExpirationTime = &end
	}
	metadata := metav1.ObjectMeta{Name: text(x.Name, "x"), Namespace: Namespace}
	if !x.Uncreated {
		metadata.CreationTimestamp = at(x.Created, -3600)
	}
	if x.Namespace != nil {
		metadata.Namespace = *x.Namespace
	}
	version := metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicyException"}
	if metadata.Namespace == "" {
		version.Kind = "ClusterWebhookPolicyException"
		return &v1alpha1.ClusterWebhookPolicyException{TypeMeta: version, ObjectMeta: metadata, Spec: spec}
	}
	return &v1alpha1.WebhookPolicyException{TypeMeta: version, ObjectMeta: metadata, Spec: spec}
}

const defaultObjects = `
Pod:
  resource: {version: v1, resource: pods}
  object: {apiVersion: v1, kind: Pod, metadata: {namespace: shop}, spec: {containers: [{name: web, image: "a:1"}]}}
Deployment:
  resource: {group: apps, version: v1, resource: deployments}
  object:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {namespace: shop}
    spec:
      selector: {matchLabels: {app: web}}
      template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "a:1"}]}}
Namespace:
  resource: {version: v1, resource: namespaces}
  object: {apiVersion: v1, kind: Namespace, metadata: {}}
ClusterRole:
  resource: {group: rbac.authorization.k8s.io, version: v1, resource: clusterroles}
  object: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {}}
`

// Request returns the request.
func (c *Case) Request() (*admissionv1.AdmissionRequest, error) {
	out := &admissionv1.AdmissionRequest{
		UID:         "1",
		Name:        "web",
		Namespace:   Namespace,
		SubResource: c.Subresource,
		Operation:   admissionv1.Create,
		UserInfo:    authenticationv1.UserInfo{Username: "alice"},
	}
	if c.Operation != "" {
		out.Operation = admissionv1.Operation(c.Operation)
	}
	switch {
	case c.Kind == "Namespace":
		out.Name = Namespace
	case c.Kind == "ClusterRole":
		out.Namespace = ""
	case c.Nameless || c.GenerateName:
		out.Name = ""
	case c.RequestName != "":
		out.Name = c.RequestName
	}
	var err error
	if out.Operation != admissionv1.Delete {
		if out.Object.Raw, err = c.object(out, c.Labels, false); err != nil {
			return nil, err
		}
	}
	if out.Operation != admissionv1.Create {
		old := c.OldLabels
		if old == nil {
			old = c.Labels
		}
		if out.OldObject.Raw, err = c.object(out, old, c.ChangedTemplate); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// object returns the object of the request, and sets its kind and resource.
func (c *Case) object(r *admissionv1.AdmissionRequest, labels map[string]string, earlier bool) ([]byte, error) {
	known := map[string]struct {
		Resource metav1.GroupVersionResource `json:"resource"`
		Object   map[string]any              `json:"object"`
	}{}
	if err := yaml.Unmarshal([]byte(defaultObjects), &known); err != nil {
		return nil, fmt.Errorf("reading the default objects: %w", err)
	}
	kind := c.Kind
	if kind == "" {
		kind = "Pod"
	}
	chosen := known[kind]
	r.Resource = chosen.Resource
	r.Kind = metav1.GroupVersionKind{Group: chosen.Resource.Group, Version: chosen.Resource.Version, Kind: kind}
	metadata, _ := chosen.Object["metadata"].(map[string]any)
	metadata["name"] = "web"
	switch {
	case kind == "Namespace":
		metadata["name"] = Namespace
	case c.GenerateName:
		delete(metadata, "name")
		metadata["generateName"] = "web-"
	}
	if labels == nil {
		labels = map[string]string{"app": "web"}
	}
	metadata["labels"] = labels
	raw, err := json.Marshal(chosen.Object)
	if err != nil {
		return nil, fmt.Errorf("writing the object: %w", err)
	}
	if earlier {
		raw = []byte(strings.Replace(string(raw), `"image":"a:1"`, `"image":"a:0"`, 1))
	}
	return raw, nil
}
