package podsecurity

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	admissionapi "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/admission/api/validation"

	"github.com/ostiary/ostiary/internal/plugins/define"
)

// Bounds of kinds with templates.
const (
	maxKinds = 50
	maxPaths = 10
	maxPath  = 256 // bytes
)

// Config is the native configuration, of kind PodSecurityConfiguration in
// pod-security.admission.config.k8s.io/v1, and podTemplates.
type Config struct {
	define.Typed `json:",inline"`
	// defaults apply to namespaces whose labels do not define a level.
	Defaults Defaults `json:"defaults,omitempty"`
	// exemptions are the users, namespaces and classes without a level.
	Exemptions Exemptions `json:"exemptions,omitempty"`
	// podTemplates are resources other than the built-in ones that create Pods. Their
	// authors get warnings about their Pods, as with Deployments. At most 50.
	PodTemplates []PodTemplates `json:"podTemplates,omitempty"`
}

// Defaults are the levels and versions of namespaces that do not define them.
type Defaults struct {
	// enforce is the level that Pods must satisfy: privileged, baseline or restricted.
	// Default: privileged.
	Enforce string `json:"enforce,omitempty"`
	// enforce-version is the Kubernetes version of the level: v1.x or latest. Default:
	// latest.
	EnforceVersion string `json:"enforce-version,omitempty"`
	// audit is the level of audit annotations. Default: privileged.
	Audit string `json:"audit,omitempty"`
	// audit-version is the version of that level. Default: latest.
	AuditVersion string `json:"audit-version,omitempty"`
	// warn is the level of warnings. Default: privileged.
	Warn string `json:"warn,omitempty"`
	// warn-version is the version of that level. Default: latest.
	WarnVersion string `json:"warn-version,omitempty"`
}

// Exemptions are users, namespaces and classes without a level.
type Exemptions struct {
	// usernames are exempt users. Default: none.
	Usernames []string `json:"usernames,omitempty"`
	// namespaces are exempt namespaces. Default: none.
	Namespaces []string `json:"namespaces,omitempty"`
	// runtimeClasses are the names of exempt classes. Default: none.
	RuntimeClasses []string `json:"runtimeClasses,omitempty"`
}

// PodTemplates are the paths of templates in the objects of one resource.
type PodTemplates struct {
	// group is the API group of the resource.
	Group string `json:"group"`
	// version is the version of the paths. Other versions are converted to it.
	Version string `json:"version"`
	// resource is the plural name, for example rollouts.
	Resource string `json:"resource"`
	// paths are the paths of Pod templates, which have a spec, for example spec.template.
	// [*] means all entries of a list or map: spec.workers[*].template. At most 10, each
	// of at most 256 bytes.
	Paths []string `json:"paths"`
}

// native returns the configuration in the type of the API server, with defaults.
func (c Config) native() *admissionapi.PodSecurityConfiguration {
	level := func(s string) string { return cmp.Or(s, "privileged") }
	version := func(s string) string { return cmp.Or(s, "latest") }
	return &admissionapi.PodSecurityConfiguration{
		Defaults: admissionapi.PodSecurityDefaults{
			Enforce: level(c.Defaults.Enforce), EnforceVersion: version(c.Defaults.EnforceVersion),
			Audit: level(c.Defaults.Audit), AuditVersion: version(c.Defaults.AuditVersion),
			Warn: level(c.Defaults.Warn), WarnVersion: version(c.Defaults.WarnVersion),
		},
		Exemptions: admissionapi.PodSecurityExemptions(c.Exemptions),
	}
}

func (c Config) check(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if versions := apiVersions(); c.APIVersion != "" && !slices.Contains(versions, c.APIVersion) {
		errs = append(errs, field.NotSupported(at.Child("apiVersion"), c.APIVersion, versions))
	}
	errs = append(errs, define.Typed{Kind: c.Kind}.Check("", "PodSecurityConfiguration", at)...)
	for _, e := range validation.ValidatePodSecurityConfiguration(c.native()) {
		e.Field = at.String() + "." + e.Field
		errs = append(errs, e)
	}
	return errs
}

// apiVersions returns the versions that the API server accepts, which are equal.
func apiVersions() []string {
	const group = "pod-security.admission.config.k8s.io/"
	return []string{group + "v1", group + "v1beta1", group + "v1alpha1"}
}

// templates returns the paths by resource.
func (c Config) templates(at *field.Path) (map[schema.GroupVersionResource][]templatePath, field.ErrorList) {
	at = at.Child("podTemplates")
	var errs field.ErrorList
	if n := len(c.PodTemplates); n > maxKinds {
		return nil, field.ErrorList{field.TooMany(at, n, maxKinds)}
	}
	out := map[schema.GroupVersionResource][]templatePath{}
	for i, t := range c.PodTemplates {
		gvr := schema.GroupVersionResource{Group: t.Group, Version: t.Version, Resource: t.Resource}
		errs = append(errs, t.checkResource(at.Index(i))...)
		if out[gvr] != nil {
			errs = append(errs, field.Duplicate(at.Index(i), gvr.String()))
		}
		paths, more := t.parsePaths(at.Index(i).Child("paths"))
		out[gvr] = paths
		errs = append(errs, more...)
	}
	return out, errs
}

func (t PodTemplates) checkResource(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, known := builtIn()[schema.GroupResource{Group: t.Group, Resource: t.Resource}]; known {
		return field.ErrorList{field.Forbidden(at.Child("resource"), "remove it: the plugin checks "+t.Resource+" without configuration")}
	}
	for _, f := range []struct{ name, value, hint string }{
		{"group", t.Group, "name the API group, as argoproj.io"},
		{"version", t.Version, "name the version, as v1"},
		{"resource", t.Resource, "name the resource in the plural, as rollouts"},
	} {
		switch {
		case f.value == "":
			errs = append(errs, field.Required(at.Child(f.name), f.hint))
		case strings.ContainsAny(f.value, "*/") || strings.ToLower(f.value) != f.value:
			errs = append(errs, field.Invalid(at.Child(f.name), f.value, f.hint))
		}
	}
	return errs
}

func (t PodTemplates) parsePaths(at *field.Path) ([]templatePath, field.ErrorList) {
	switch n := len(t.Paths); {
	case n == 0:
		return nil, field.ErrorList{field.Required(at, "say where the template is, as spec.template")}
	case n > maxPaths:
		return nil, field.ErrorList{field.TooMany(at, n, maxPaths)}
	}
	var errs field.ErrorList
	var out []templatePath
	for i, text := range t.Paths {
		path, ok := parsePath(text)
		if !ok {
			errs = append(errs, field.Invalid(at.Index(i), text, "write names with dots between them, as spec.template or spec.workers[*].template"))
		}
		out = append(out, path)
	}
	return out, errs
}
