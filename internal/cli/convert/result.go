package convert

import (
	"context"
	"strings"

	"github.com/ostiary/ostiary/internal/cli/lint"
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
}

// check drops the policies that an API server or Ostiary would reject.
func (r *result) check(ctx context.Context) error {
	written, err := r.Policies(ctx)
	if err != nil {
		return err
	}
	findings, err := lint.Errors(ctx, written, policy.LatestEngine)
	if err != nil {
		return err
	}
	for _, f := range findings {
		name := f.Policy
		if name == "" {
			name = f.File
		}
		r.Reject(name, strings.TrimPrefix(f.Field+": "+f.Message, ": "))
	}
	return nil
}
