package convert

import (
	"github.com/ostiary/ostiary/internal/cli/convert/conversion"
	"github.com/ostiary/ostiary/internal/cli/convert/gatekeeper"
	"github.com/ostiary/ostiary/internal/cli/convert/kyverno/celpolicies"
	"github.com/ostiary/ostiary/internal/cli/convert/kyverno/classic"
	"github.com/ostiary/ostiary/internal/cli/convert/native"
)

// sources returns the converters. This is the only list of them.
func sources() []conversion.Source {
	return []conversion.Source{
		native.Source{},
		celpolicies.Source{},
		gatekeeper.Source{},
		classic.Source{},
	}
}
