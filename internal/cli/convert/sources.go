package convert

import (
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/gatekeeper"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/celpolicies"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/classic"
	"github.com/ostiary/ostiary/internal/migrate/native"
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
