package policyvalidator

import (
	"context"
	"errors"
	"strings"

	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/internal/audit"
)

// pageObjects is the number of objects that one request lists.
const pageObjects = 250

// errLimit means that objects remain that were not read because of a limit.
var errLimit = errors.New("a limit was reached")

// resource is a resource whose objects are listed.
type resource audit.Resource

// plural returns the kind in the plural, such as NetworkPolicies.
func (r resource) plural() string {
	n := 0
	for n < min(len(r.Kind.Kind), len(r.Resource)) && strings.EqualFold(r.Kind.Kind[:n+1], r.Resource[:n+1]) {
		n++
	}
	return r.Kind.Kind[:n] + r.Resource[n:]
}

// list passes the objects of a resource to a function, at most left of them. It returns errLimit if there are more.
func (r resource) list(ctx context.Context, reader objects.Reader, left *int, visit func(*audit.Object)) error {
	if *left <= 0 {
		return errLimit
	}
	return reader.List(ctx, r.GroupVersionResource, int64(min(pageObjects, *left)), func(string) {}, func(raw []byte) error {
		if *left <= 0 {
			return errLimit
		}
		*left--
		if ctx.Err() != nil {
			return ctx.Err()
		}
		o, err := objects.New(raw, r.GroupVersionResource, r.Kind)
		if err != nil {
			return err
		}
		o.KeepsStatus = r.KeepsStatus
		visit(&o.Object)
		return nil
	})
}
