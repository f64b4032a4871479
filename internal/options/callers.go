package options

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// AuthenticatesCallers reports whether callers need a credential.
func (o *Options) AuthenticatesCallers() bool {
	return o.ClientCA != "" || o.CallerTokenSecret != "" || o.CallerBasicSecret != ""
}

func (o *Options) validateCallers() field.ErrorList {
	var errs field.ErrorList
	names := field.NewPath("--client-names")
	switch {
	case o.ClientCA != "" && len(o.ClientNames) == 0:
		errs = append(errs, field.Required(names, "give the names in the client certificates of API servers: otherwise every certificate of --client-ca would be accepted"))
	case o.ClientCA == "" && len(o.ClientNames) > 0:
		errs = append(errs, field.Forbidden(names, "give --client-ca too: only a CA can certify names"))
	}
	for _, name := range o.ClientNames {
		if name == "" || strings.Contains(name, "*") || strings.TrimSpace(name) != name {
			errs = append(errs, field.Invalid(names, name, "write out each name: names are compared exactly"))
		}
	}
	errs = append(errs, callerSecret("--caller-token-secret", o.CallerTokenSecret)...)
	errs = append(errs, callerSecret("--caller-basic-secret", o.CallerBasicSecret)...)
	for flag, name := range map[string]string{"--caller-token-secret": o.CallerTokenSecret, "--caller-basic-secret": o.CallerBasicSecret} {
		if name != "" && name == o.CertificateSecret {
			errs = append(errs, field.Invalid(field.NewPath(flag), name, "give another Secret than --certificate-secret: its public parts would be credentials"))
		}
	}
	if o.CallerTokenSecret != "" && o.CallerTokenSecret == o.CallerBasicSecret {
		errs = append(errs, field.Invalid(field.NewPath("--caller-basic-secret"), o.CallerBasicSecret, "give another Secret than --caller-token-secret: each of its fields would be a token"))
	}
	return errs
}

// callerSecret rejects Secrets with certificates: their public parts would be
// credentials.
func callerSecret(flag, name string) field.ErrorList {
	path := field.NewPath(flag)
	if name == "" {
		return nil
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return field.ErrorList{field.Invalid(path, name, "give the name of a Secret: "+strings.Join(problems, ", "))}
	}
	if slices.Contains(ownSecrets(), name) {
		return field.ErrorList{field.Invalid(path, name, "give a Secret of its own: this one holds certificates")}
	}
	return nil
}
