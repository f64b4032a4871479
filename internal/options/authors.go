package options

import (
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/internal/egress"
)

// Authors limit what authors of policies get through Ostiary.
type Authors struct {
	DisableBackends           bool
	PermittedBackendAddresses []string
	ParamsAccount             string
}

func (o *Options) bindAuthors(f *pflag.FlagSet) {
	a := &o.Authors
	f.BoolVar(&a.DisableBackends, "disable-backends", false, "reject policies with spec.backend, and register none of them")
	f.StringSliceVar(&a.PermittedBackendAddresses, "permitted-backend-addresses", nil, "addresses or CIDRs that backends may have although they are loopback, link-local, multicast or metadata addresses; authors of policies with backends reach with them what listens there on every API server and on Ostiary's node")
	f.StringVar(&a.ParamsAccount, "params-account", "ostiary-params", "ServiceAccount in Ostiary's namespace that Ostiary impersonates to read params; empty: read them with Ostiary's own permissions, so that authors of policies read all that Ostiary may read")
}

// Backends is the rule for backends of policies. Addresses that are not valid are
// not permitted.
func (a *Authors) Backends() egress.Rule {
	rule := egress.Rule{DisableBackends: a.DisableBackends}
	for _, text := range a.PermittedBackendAddresses {
		if prefix, err := parsePrefix(text); err == nil {
			rule.Permitted = append(rule.Permitted, prefix)
		}
	}
	return rule
}

func (o *Options) validateAuthors() field.ErrorList {
	var errs field.ErrorList
	for _, text := range o.Authors.PermittedBackendAddresses {
		if _, err := parsePrefix(text); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("--permitted-backend-addresses"), text, "give an IP address or a CIDR, as 127.0.0.1 or 127.0.0.0/8"))
		}
	}
	if name := o.Authors.ParamsAccount; name != "" {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("--params-account"), name, "give the name of a ServiceAccount: "+strings.Join(problems, ", ")))
		}
	}
	return errs
}

func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}
