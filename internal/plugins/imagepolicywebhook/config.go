package imagepolicywebhook

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/internal/pluginapi"
)

// Config is the configuration of the native plugin, except for the location of the
// kubeconfig.
type Config struct {
	// imagePolicy configures the backend. Required.
	ImagePolicy Settings `json:"imagePolicy"`
}

// Settings configure a backend.
type Settings struct {
	// kubeConfigSecret names a Secret in Ostiary's namespace with the kubeconfig.
	// Required.
	KubeConfigSecret *SecretKey `json:"kubeConfigSecret,omitempty"`
	// kubeConfigFile is the native field. It is rejected: put the content of the file
	// into the Secret.
	KubeConfigFile string `json:"kubeConfigFile,omitempty"`
	// allowTTL is the number of seconds for which Ostiary caches an answer that allows, for
	// requests with the same images, annotations and namespace: between 1 and 1800; -1
	// disables the cache. Default: 300.
	AllowTTL int64 `json:"allowTTL,omitempty"`
	// denyTTL is the number of seconds for which Ostiary caches an answer that denies, for
	// requests with the same images, annotations and namespace: between 1 and 1800; -1
	// disables the cache. Default: 30.
	DenyTTL int64 `json:"denyTTL,omitempty"`
	// retryBackoff is the number of milliseconds before the next attempt, up to 300000,
	// multiplied by 1.5 each time; -1 is no delay. Ostiary makes up to five attempts
	// within the time of the request. Default: 500.
	RetryBackoff int64 `json:"retryBackoff,omitempty"`
	// defaultAllow allows Pods if the backend does not answer. Default: false.
	DefaultAllow bool `json:"defaultAllow,omitempty"`
}

// SecretKey is a field of a Secret.
type SecretKey struct {
	// name is the name of the Secret. The installation grants access to
	// ostiary-image-policy. Required.
	Name string `json:"name"`
	// key is the field with the kubeconfig. Default: kubeconfig.
	Key string `json:"key,omitempty"`
}

// settings holds the settings with defaults. They can be compared.
type settings struct {
	backend                         pluginapi.SecretKey
	allowTTL, denyTTL, retryBackoff time.Duration
	defaultAllow                    bool
}

const maxTTL = 30 * time.Minute

func (s Settings) settings(at *field.Path) (settings, field.ErrorList) {
	out := settings{defaultAllow: s.DefaultAllow}
	var errs field.ErrorList
	if s.KubeConfigFile != "" {
		errs = append(errs, field.Forbidden(at.Child("kubeConfigFile"), "put what is in the file into a Secret in Ostiary's namespace, and name that in kubeConfigSecret: {name: ostiary-image-policy, key: kubeconfig}"))
	}
	if secret := at.Child("kubeConfigSecret"); s.KubeConfigSecret == nil {
		errs = append(errs, field.Required(secret, "name a Secret in Ostiary's namespace with the kubeconfig of the backend: {name: ostiary-image-policy, key: kubeconfig}"))
	} else {
		out.backend = pluginapi.SecretKey{Name: s.KubeConfigSecret.Name, Key: s.KubeConfigSecret.Key}
		if out.backend.Key == "" {
			out.backend.Key = "kubeconfig"
		}
		for _, problem := range content.IsDNS1123Subdomain(out.backend.Name) {
			errs = append(errs, field.Invalid(secret.Child("name"), out.backend.Name, problem))
		}
		for _, problem := range validation.IsConfigMapKey(out.backend.Key) {
			errs = append(errs, field.Invalid(secret.Child("key"), out.backend.Key, problem))
		}
	}
	var err *field.Error
	for _, d := range []struct {
		name                       string
		value                      int64
		unit, least, most, natural time.Duration
		into                       *time.Duration
	}{
		{"allowTTL", s.AllowTTL, time.Second, time.Second, maxTTL, 5 * time.Minute, &out.allowTTL},
		{"denyTTL", s.DenyTTL, time.Second, time.Second, maxTTL, 30 * time.Second, &out.denyTTL},
		{"retryBackoff", s.RetryBackoff, time.Millisecond, time.Millisecond, 5 * time.Minute, 500 * time.Millisecond, &out.retryBackoff},
	} {
		if *d.into, err = duration(d.value, d.unit, d.least, d.most, d.natural, at.Child(d.name)); err != nil {
			errs = append(errs, err)
		}
	}
	return out, errs
}

// duration reads a number as the native plugin does: -1 means none, and 0 the default.
func duration(value int64, unit, least, most, natural time.Duration, at *field.Path) (time.Duration, *field.Error) {
	switch {
	case value == -1:
		return 0, nil
	case value == 0:
		return natural, nil
	case value < int64(least/unit) || value > int64(most/unit):
		return 0, field.Invalid(at, value, fmt.Sprintf("choose between %d and %d, -1 for none, or leave it out for %d", least/unit, most/unit, natural/unit))
	}
	return time.Duration(value) * unit, nil
}
