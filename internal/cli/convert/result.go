package convert

import (
	"context"
	"slices"
	"strings"

	"github.com/ostiary/ostiary/internal/cli/lint"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate"
	"github.com/ostiary/ostiary/internal/migrate/verify"
	"github.com/ostiary/ostiary/internal/policy"
)

// result is what a run of the command writes.
type result struct {
	*migrate.Result
	audited  int            // policies whose actions are Audit instead of those of the source
	verified *verify.Result // of tests
	compared *verify.Result // of objects
	skipped  []error        // what cannot be read
	others   []otherKind
	// unrehearsed are policies that were not, or not completely, evaluated with ordinary objects.
	unrehearsed []string
}

// check drops the policies that an API server or Ostiary would reject. It returns the others as they
// are written.
func (r *result) check(ctx context.Context) ([]load.Object, error) {
	written, err := r.Policies(ctx)
	if err != nil {
		return nil, err
	}
	findings, err := lint.Errors(ctx, written, policy.LatestEngine)
	if err != nil {
		return nil, err
	}
	rejected := map[string]bool{}
	for _, f := range findings {
		name := f.Policy
		if name == "" {
			name = f.File
		}
		rejected[name] = true
		r.Reject(name, strings.TrimPrefix(f.Field+": "+f.Message, ": "))
	}
	return slices.DeleteFunc(written, func(o load.Object) bool { return rejected[o.Metadata.Name] }), nil
}

// rehearse notes the expressions that fail for ordinary objects, or that deny all of them. Kinds
// that are not built in need their definition in the input.
func (r *result) rehearse(ctx context.Context, written, input []load.Object) error {
	defined := slices.Clone(written)
	for i := range input {
		if input[i].Kind == "CustomResourceDefinition" {
			defined = append(defined, input[i])
		}
	}
	findings, incomplete, err := lint.Refusals(ctx, defined, policy.LatestEngine)
	r.unrehearsed = incomplete
	for _, f := range findings {
		r.NoteRefusal(f.Policy, f.Field, f.Message)
	}
	return err
}
