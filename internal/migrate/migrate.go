// Package migrate converts the policies of other projects to WebhookPolicies, and back to
// native policies. It turns objects into objects: the command reads and writes them.
//
// A new source is a package below with a function Source, a line in Sources, inputs with their
// golden files in internal/cli/convert/testdata/cases, and a page in docs/migration that names
// its group. The command, its help and the inventory read the list.
package migrate

import (
	"errors"
	"time"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/gatekeeper"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/celpolicies"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/classic"
	"github.com/ostiary/ostiary/internal/migrate/native"
)

// Sources returns what is converted to WebhookPolicies. This is the only list: the command
// finds objects by it in files and in a cluster, and describes them with it, and a test
// compares the documents with it.
func Sources() []conversion.Source {
	return []conversion.Source{
		native.Source(),
		celpolicies.Source(),
		gatekeeper.Source(),
		classic.Source(),
	}
}

// ToNative returns what is converted to native policies.
func ToNative() []conversion.Source { return []conversion.Source{native.Back()} }

// Convert converts the objects that sources own, in the order of sources.
func Convert(sources []conversion.Source, objects []load.Object, o conversion.Options, now time.Time) (*Result, error) {
	var all []conversion.Conversion
	var errs []error
	for i := range sources {
		in := &conversion.Input{All: objects, Sources: sources, Options: o, Now: now}
		for j := range objects {
			if sources[i].Owns(objects[j].GroupVersionKind().GroupKind()) {
				in.Objects = append(in.Objects, objects[j])
			}
		}
		if len(in.Objects) == 0 {
			continue
		}
		converted, err := sources[i].Convert(in)
		all = append(all, converted...)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return newResult(all), nil
}
