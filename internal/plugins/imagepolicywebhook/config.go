package imagepolicywebhook

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/internal/policy"
)

// Config is the plugin's configuration: the native one, but for where the
// kubeconfig is.
type Config struct {
	// imagePolicy says where the backend is, and how to deal with it. Required.
	ImagePolicy Settings `json:"imagePolicy"`
}

// Settings are those of one backend.
type Settings struct {
	// kubeConfigSecret is where the kubeconfig is: a Secret in Ostiary's namespace.
	// Required.
	KubeConfigSecret *SecretKey `json:"kubeConfigSecret,omitempty"`
	// kubeConfigFile is the native field, which is refused: put what is in the file
	// into the Secret.
	KubeConfigFile string `json:"kubeConfigFile,omitempty"`
	// allowTTL is for how many seconds an allowance is remembered, between 1 and
	// 1800; -1 is not at all. Default: 300.
	AllowTTL int64 `json:"allowTTL,omitempty"`
	// denyTTL is for how many seconds a refusal is remembered, between 1 and 1800; -1
	// is not at all. Default: 30.
	DenyTTL int64 `json:"denyTTL,omitempty"`
	// retryBackoff is how many milliseconds to wait before the backend is asked
	// again, up to 300000, and half as much more each time; -1 is not to wait. It is
	// asked five times, as long as there is time. Default: 500.
	RetryBackoff int64 `json:"retryBackoff,omitempty"`
	// defaultAllow allows images while the backend does not answer. Default: false.
	DefaultAllow bool `json:"defaultAllow,omitempty"`
}

// SecretKey is a field of a Secret.
type SecretKey struct {
	// name of the Secret. The permission that is installed is for
	// ostiary-image-policy. Required.
	Name string `json:"name"`
	// key of the kubeconfig in it. Default: kubeconfig.
	Key string `json:"key,omitempty"`
}

// settings are those of a configuration, completed. They can be compared.
type settings struct {
	backend                         policy.SecretKey
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
		out.backend = policy.SecretKey{Name: s.KubeConfigSecret.Name, Key: s.KubeConfigSecret.Key}
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

// duration reads a number as the native plugin does: -1 is none, and 0 the default.
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
