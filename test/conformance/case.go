package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Case is policies, and the requests that are put to them one after the other.
// In all of its texts {ns} stands for the case's namespace, {slot} for the value
// of the label slot that its namespace has, and {case} for the case's number.
type Case struct {
	Name string `json:"name"`
	// Tier is the label tier of the case's namespace: prod, dev, or "" for none.
	Tier string `json:"tier,omitempty"`
	// ByObject binds the policies to objects with the case's label slot, not to
	// its namespace: for cluster-scoped kinds.
	ByObject bool `json:"byObject,omitempty"`
	// Policies are the specs. Neither the selector that binds them to the case
	// nor a timeout has to be given.
	Policies []v1alpha1.WebhookPolicySpec `json:"policies"`
	Requests []Request                    `json:"requests,omitempty"`
	// Exceptions are those of Ostiary. The native policies contain their effect.
	Exceptions []Exception `json:"exceptions,omitempty"`
	// Refused: both engines have to refuse the policies.
	Refused bool `json:"refused,omitempty"`
	// Generated: whether the policies are refused is unknown.
	Generated bool `json:"generated,omitempty"`
	// Differs names the known differences that the case has to show.
	Differs []string `json:"differs,omitempty"`
}

// Request is one call of the API.
type Request struct {
	// Method is POST, PUT, PATCH, DELETE or GET.
	Method string `json:"method"`
	// Path begins with a slash and may have a query.
	Path string `json:"path"`
	// Body is the object, the patch, or the options of a deletion.
	Body json.RawMessage `json:"body,omitempty"`
	// Type of the body; "" is application/json.
	Type string `json:"type,omitempty"`
	// Stored: without it the request is a dry run, where there is such a thing.
	Stored bool  `json:"stored,omitempty"`
	User   *User `json:"user,omitempty"`
	// Want is how the answers have to begin, "allowed" or code, reason and message.
	Want string `json:"want,omitempty"`
	// Shows are texts that have to stand in the answers, written as YAML.
	Shows []string `json:"shows,omitempty"`
}

// User is who asks; without one it is the admin.
type User struct {
	Name   string              `json:"name"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// LoadCases reads the cases in the YAML files of a folder, each a list.
func LoadCases(dir string) ([]Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("finding cases: %w", err)
	}
	var all []Case
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading cases: %w", err)
		}
		var cases []Case
		if err := unmarshal(content, &cases); err != nil {
			return nil, fmt.Errorf("reading cases of %s: %w", file, err)
		}
		for i := range cases {
			cases[i].Name = strings.TrimSuffix(filepath.Base(file), ".yaml") + "/" + cases[i].Name
		}
		all = append(all, cases...)
	}
	return all, nil
}

// unmarshal refuses fields that it does not know. A strict YAML decoder would
// also refuse what a merge key ("<<") is for: a field that is given anew.
func unmarshal(content []byte, into any) error {
	text, err := yaml.YAMLToJSON(content)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// slot is a namespace that cases take turns in.
type slot struct {
	namespace, label, tier string
}

func tiers() []string { return []string{"prod", "dev", ""} }

func slots(perTier int) []slot {
	var out []slot
	for i := range perTier * len(tiers()) {
		label := fmt.Sprintf("%03d", i)
		out = append(out, slot{namespace: "slot-" + label, label: label, tier: tiers()[i%len(tiers())]})
	}
	return out
}

func (s slot) expand(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte("{ns}"), []byte(s.namespace))
	return bytes.ReplaceAll(text, []byte("{slot}"), []byte(s.label))
}

// placed is a case in its slot, with its policies as WebhookPolicies.
type placed struct {
	Case
	slot     slot
	minor    int // version of Kubernetes
	policies []*v1alpha1.WebhookPolicy
	// native are the policies that the native engine gets.
	native     []*v1alpha1.WebhookPolicy
	exceptions []*v1alpha1.WebhookPolicyException
	installed  time.Time
}

// place gives a case its slot and its policies their names.
func place(c Case, number int, s slot) (*placed, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encoding case %s: %w", c.Name, err)
	}
	text = bytes.ReplaceAll(s.expand(text), []byte("{case}"), fmt.Appendf(nil, "%d", number))
	p := &placed{slot: s, installed: time.Now()}
	if err := json.Unmarshal(text, &p.Case); err != nil {
		return nil, fmt.Errorf("decoding case %s: %w", c.Name, err)
	}
	for i := range p.Policies {
		name := fmt.Sprintf("p%05d-%c", number, 'a'+i)
		p.policies = append(p.policies, p.policy(name, p.Policies[i]))
	}
	p.placeExceptions(number)
	return p, nil
}

func (p *placed) policy(name string, spec v1alpha1.WebhookPolicySpec) *v1alpha1.WebhookPolicy {
	out := &v1alpha1.WebhookPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       *spec.DeepCopy(),
	}
	if out.Spec.TimeoutSeconds == nil {
		out.Spec.TimeoutSeconds = new(int32(30)) // a busy machine is not what is tested
	}
	if m := out.Spec.MatchConstraints; m != nil {
		if p.ByObject {
			m.ObjectSelector = withLabel(m.ObjectSelector, "slot", p.slot.label)
		} else {
			m.NamespaceSelector = withLabel(m.NamespaceSelector, "slot", p.slot.label)
		}
	}
	for i := range out.Spec.Bindings {
		// Native bindings are objects of their own, with names for all of them.
		if b := &out.Spec.Bindings[i]; b.Name != "" {
			b.Name = name + "-" + b.Name
		}
	}
	return out
}

func withLabel(in *metav1.LabelSelector, key, value string) *metav1.LabelSelector {
	out := &metav1.LabelSelector{}
	if in != nil {
		out = in.DeepCopy()
	}
	out.MatchExpressions = append(slices.Clone(out.MatchExpressions), metav1.LabelSelectorRequirement{
		Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value},
	})
	return out
}
