package options

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Lookups bounds what policies keep of other objects.
type Lookups struct {
	// Entries is the number of keys of all objects of a lookup.
	Entries int
	// Memory is for all lookups.
	Memory resource.QuantityValue
	// MaxAge is the age of the data after which requests are errors.
	MaxAge time.Duration
}

// DefaultLookupMemory is the default of Lookups.Memory, in bytes.
const DefaultLookupMemory = 64 << 20

const (
	defaultLookupEntries               = 200_000
	minLookupEntries, maxLookupEntries = 1_000, 10_000_000
	minLookupMemory, maxLookupMemory   = 16 << 20, 64 << 30
	defaultLookupAge                   = 3 * time.Minute
	minLookupMaxAge, maxLookupMaxAge   = time.Minute, time.Hour
)

func (o *Options) bindLookups(f *pflag.FlagSet) {
	l := &o.Lookups
	f.IntVar(&l.Entries, "lookup-entries", defaultLookupEntries,
		"number of keys that a lookup keeps of all objects together. "+
			"The objects of a namespace can have an eighth of it; requests that could find others are errors")
	f.Var(&l.Memory, "lookup-memory", "memory for the keys and values of all lookups; 0 means 64Mi. "+
		"A namespace can use an eighth of it; requests that could find others are errors")
	f.DurationVar(&l.MaxAge, "lookup-max-age", defaultLookupAge,
		"time since the API server last confirmed the objects of a lookup, after which requests that read it are errors")
}

func (o *Options) validateLookups() field.ErrorList {
	var errs field.ErrorList
	l := &o.Lookups
	if l.Entries < minLookupEntries || l.Entries > maxLookupEntries {
		errs = append(errs, field.Invalid(field.NewPath("--lookup-entries"), l.Entries, "give a number from 1000 to 10000000"))
	}
	if m := l.Memory; !m.IsZero() && (m.Value() < minLookupMemory || m.Value() > maxLookupMemory) {
		errs = append(errs, field.Invalid(field.NewPath("--lookup-memory"), m.String(), "give from 16Mi to 64Gi, or 0 for the default"))
	}
	if l.MaxAge < minLookupMaxAge || l.MaxAge > maxLookupMaxAge {
		errs = append(errs, field.Invalid(field.NewPath("--lookup-max-age"), l.MaxAge.String(), "give from 1m to 1h"))
	}
	return errs
}
