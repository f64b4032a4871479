package options

import (
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/internal/egress"
)

// Authors limits the access that authors of policies have through Ostiary.
type Authors struct {
	DisableBackends           bool
	PermittedBackendAddresses []string
	ParamsAccount             string
}

func (o *Options) bindAuthors(f *pflag.FlagSet) {
	a := &o.Authors
	f.BoolVar(&a.DisableBackends, "disable-backends", false, "reject policies with spec.backend, and register none of them")
	f.StringSliceVar(&a.PermittedBackendAddresses, "permitted-backend-addresses", nil, "loopback, link-local, multicast or metadata addresses or CIDRs that backends may have; authors of policies with backends can then reach services there on every API server and on Ostiary's node")
	f.StringVar(&a.ParamsAccount, "params-account", "ostiary-params", "ServiceAccount in Ostiary's namespace that Ostiary impersonates to read params; empty: Ostiary reads params with its own permissions, so authors of policies can read everything that Ostiary can")
}

// Backends returns the rule for backends of policies. Invalid addresses are not
// permitted.
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
			errs = append(errs, field.Invalid(field.NewPath("--permitted-backend-addresses"), text, "give an IP address or a CIDR, such as 127.0.0.1 or 127.0.0.0/8"))
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
