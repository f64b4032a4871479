package gatekeeper

import (
	"embed"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// engineRego is the engine of templates in Rego that have a source for each engine.
const engineRego = "Rego"

// publicTemplate is a template that Gatekeeper's public library has in Rego, with CEL of ours.
type publicTemplate struct {
	Kind string `json:"kind"`
	// Versions are those with the same decisions.
	Versions []publicVersion `json:"versions"`
	// Rounded are amounts that the template multiplies with fractions of 64 bits.
	Rounded []string `json:"rounded,omitempty"`
	// Lookups find the objects that the template reads from Gatekeeper's inventory.
	Lookups []v1alpha1.Lookup `json:"lookups,omitempty"`
	// Optional are lookups of constraints with a parameter.
	Optional *optionalLookups `json:"optional,omitempty"`
	// Source is the CEL. A variable without an expression is one that several templates use.
	Source celSource `json:"source"`
}

// optionalLookups are lookups, and what reads them.
type optionalLookups struct {
	Parameter   string            `json:"parameter"`
	Lookups     []v1alpha1.Lookup `json:"lookups"`
	Validations []celValidation   `json:"validations"`
}

type publicVersion struct {
	Version string `json:"version"`
	// Rego are the digests of the module with its libraries, as releases and the main branch have it.
	Rego []string `json:"rego"`
}

//go:embed publictemplates/*.yaml
var publicTemplateFiles embed.FS

const (
	publicTemplateDirectory = "publictemplates"
	sharedVariablesFile     = "shared.yaml"
)

// publicTemplates returns the templates of Gatekeeper's public library.
func publicTemplates() ([]publicTemplate, error) {
	shared := map[string]string{}
	if err := readPublicTemplateFile(sharedVariablesFile, &shared); err != nil {
		return nil, err
	}
	files, err := publicTemplateFiles.ReadDir(publicTemplateDirectory)
	if err != nil {
		return nil, fmt.Errorf("listing the public templates: %w", err)
	}
	var out []publicTemplate
	for _, f := range files {
		if f.Name() == sharedVariablesFile {
			continue
		}
		var t publicTemplate
		if err := readPublicTemplateFile(f.Name(), &t); err != nil {
			return nil, err
		}
		for i := range t.Source.Variables {
			if v := &t.Source.Variables[i]; v.Expression == "" {
				v.Expression = shared[v.Name]
			}
		}
		out = append(out, t)
	}
	return out, nil
}

func readPublicTemplateFile(name string, into any) error {
	text, err := publicTemplateFiles.ReadFile(publicTemplateDirectory + "/" + name)
	if err != nil {
		return fmt.Errorf("reading a public template: %w", err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		return fmt.Errorf("reading the public template %s: %w", name, err)
	}
	return nil
}

// regoSource is the source of the engine for Rego.
type regoSource struct {
	Version string   `json:"version,omitempty"`
	Rego    string   `json:"rego"`
	Libs    []string `json:"libs,omitempty"`
}

// rego returns the Rego of a template.
func (t *templateTarget) rego() regoSource {
	for _, c := range t.Code {
		var s regoSource
		if c.Engine == engineRego && json.Unmarshal(c.Source, &s) == nil {
			return s
		}
	}
	return regoSource{Rego: t.Rego, Libs: t.Libs}
}

// takePublic takes the CEL of a template of the public library that has the same Rego. A template
// that has none is left out.
func (d *templateDefinition) takePublic(templates []publicTemplate) {
	source := d.Spec.Targets[0].rego()
	digest := regoDigest(source.Rego, source.Libs)
	var versions []string
	for i := range templates {
		t := &templates[i]
		if t.Kind != d.Spec.CRD.Spec.Names.Kind {
			continue
		}
		for _, v := range t.Versions {
			versions = append(versions, v.Version)
			if slices.Contains(v.Rego, digest) {
				d.source, d.public, d.version = &t.Source, t, v.Version
				return
			}
		}
	}
	d.leaveOutRego(versions)
}

// leaveOutRego says what to use instead of a template in Rego. The versions are those of the public
// library with its name that are converted.
func (d *templateDefinition) leaveOutRego(versions []string) {
	d.failed = "the template is written in Rego, and Ostiary evaluates CEL"
	if len(versions) > 0 {
		slices.Sort(versions)
		d.failed = fmt.Sprintf(
			"its Rego differs from that of version %s of the public library, which this command knows",
			strings.Join(slices.Compact(versions), " and "),
		)
	}
	d.alternative = "use a version of the template with the engine " + engineCEL + ", as the later ones of the " +
		"public library, or write a WebhookPolicy"
	if name := libraryPolicies()[strings.ToLower(d.Spec.CRD.Spec.Names.Kind)]; name != "" {
		d.alternative = "use the policy " + name + " of Ostiary's library with parameters of its own, or a version " +
			"of the template with the engine " + engineCEL
	}
}

// optional returns the lookups of the parameters of the constraint; nil if there are none.
func (b *builder) optional() *optionalLookups {
	t := b.definition.public
	if t == nil || t.Optional == nil {
		return nil
	}
	parameters, _ := b.constraint.Spec.Parameters.(map[string]any)
	if value, ok := parameters[t.Optional.Parameter]; !ok || value == false {
		return nil
	}
	return t.Optional
}

// lookups adds the lookups of a template of the public library.
func (b *builder) lookups() {
	t := b.definition.public
	if t == nil {
		return
	}
	b.policy.Spec.Lookups = slices.Clone(t.Lookups)
	if o := b.optional(); o != nil {
		b.policy.Spec.Lookups = append(b.policy.Spec.Lookups, o.Lookups...)
	}
	if len(b.policy.Spec.Lookups) == 0 {
		b.policy.Spec.Lookups = nil
		return
	}
	b.change(
		"spec.lookups",
		"other objects are found by lookups, at most 1,000, without those whose keys have more than 1 KiB: Gatekeeper "+
			"reads what its Config keeps in its inventory",
	)
}

// noteRounding reports amounts for which Gatekeeper can deny a value that is exactly the limit.
func (b *builder) noteRounding() {
	t := b.definition.public
	parameters, _ := b.constraint.Spec.Parameters.(map[string]any)
	if t == nil {
		return
	}
	for _, name := range t.Rounded {
		if text := fmt.Sprint(parameters[name]); isRounded(text) {
			b.change(
				"spec.parameters."+name,
				"values exactly at a limit with a fraction, such as "+text+", are allowed: Gatekeeper rounds the fraction, "+
					"and denies some of them",
			)
		}
	}
}

// isRounded reports whether no fraction of binary digits is equal to a number, regardless of its unit.
func isRounded(amount string) bool {
	number, ok := new(big.Rat).SetString(strings.TrimRight(amount, "mkMGTPEKi"))
	if !ok {
		return false
	}
	d := number.Denom()
	return new(big.Int).And(d, new(big.Int).Sub(d, big.NewInt(1))).Sign() != 0
}

// libraryPolicies are the policies of Ostiary's library that have the purpose of a public
// template, by the name of the template. Their parameters differ, so they are no results.
func libraryPolicies() map[string]string {
	return map[string]string{
		"k8sallowedrepos":                         "image-registries",
		"k8sallowedreposv2":                       "image-registries",
		"k8sdisallowedrepos":                      "image-registries",
		"k8sblockloadbalancer":                    "load-balancers",
		"k8sblocknodeport":                        "node-ports",
		"k8sblockwildcardingress":                 "ingress-wildcards",
		"k8scontainerlimits":                      "memory-limits",
		"k8scontainerrequests":                    "resource-requests",
		"k8srequiredresources":                    "resource-requests",
		"k8sdisallowanonymous":                    "everyone-bindings",
		"k8sdisallowedtags":                       "image-tags",
		"k8sexternalips":                          "external-ips",
		"k8shttpsonly":                            "ingress-tls",
		"k8simagedigests":                         "image-digests",
		"k8spoddisruptionbudget":                  "disruption-budgets",
		"k8sreplicalimits":                        "minimum-replicas",
		"k8srequiredlabels":                       "recommended-labels",
		"k8srequiredprobes":                       "liveness-probes",
		"k8spspallowedusers":                      "restricted-non-root",
		"k8spspallowprivilegeescalationcontainer": "restricted-privilege-escalation",
		"k8spspapparmor":                          "baseline-apparmor",
		"k8spspautomountserviceaccounttokenpod":   "mounted-tokens",
		"k8spspcapabilities":                      "restricted-capabilities",
		"k8spspforbiddensysctls":                  "baseline-sysctls",
		"k8spsphostfilesystem":                    "baseline-host-paths",
		"k8spsphostnamespace":                     "baseline-host-namespaces",
		"k8spsphostnetworkingports":               "baseline-host-ports",
		"k8spsphostprobeslifecycle":               "baseline-host-probes",
		"k8spspprivilegedcontainer":               "baseline-privileged",
		"k8spspprocmount":                         "baseline-proc-mount",
		"k8spspreadonlyrootfilesystem":            "read-only-root",
		"k8spspseccomp":                           "restricted-seccomp",
		"k8spspselinuxv2":                         "baseline-selinux",
		"k8spspvolumetypes":                       "restricted-volume-types",
	}
}
