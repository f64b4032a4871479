package violations

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// scanned is a resource with the policies that are evaluated on its objects.
type scanned struct {
	audit.Resource

	policies []*offline.AuditedPolicy
}

// fromScan evaluates the policies of the cluster, and of files, on the objects that the user may
// list.
func (c *command) fromScan(ctx context.Context, why string) (*Violations, *output.Skipped, error) {
	s, err := c.Setting(ctx, c.In, c.ErrOut, policy.NewCompilerFor)
	if err != nil {
		return nil, nil, err
	}
	names, err := inputs.ChoosePolicies(s.Engine, c.policies)
	if err != nil {
		return nil, nil, err
	}
	v := &Violations{Source: SourceScan, Why: why, Violations: []Violation{}}
	if namespace := c.GivenNamespace(); namespace != "" {
		if _, err := s.World.GetNamespace(ctx, namespace); apierrors.IsForbidden(err) {
			v.miss("namespaces", noAccess+": policies that read the Namespace end with errors", true)
		} else if err != nil {
			return nil, nil, err
		}
	}
	policies, problems := s.Engine.Audited(names, s.Cluster.Resources)
	resources := map[schema.GroupVersionResource]scanned{}
	for i := range policies {
		if problem := problems[policies[i].Name]; problem != "" {
			v.miss(policies[i].Name, problem, true)
			delete(problems, policies[i].Name)
		}
		for _, r := range policies[i].Resources {
			resources[r.GroupVersionResource] = scanned{r, append(resources[r.GroupVersionResource].policies, &policies[i])}
		}
	}
	for name, problem := range problems {
		v.miss(name, problem, false)
	}
	return v, s.Skipped, c.scanAll(ctx, s, v, resources)
}

// Scan evaluates a policy on the objects that the user may list, and calls found for each violation.
// It returns what could not be read or evaluated.
func Scan(
	ctx context.Context, o *output.Options, flags inputs.Flags, name string,
	found func(audit.Resource, *unstructured.Unstructured, audit.Result) error,
) ([]Missing, error) {
	c := &command{Options: o, Flags: flags, policies: []string{name}, found: found}
	v, skipped, err := c.fromScan(ctx, "")
	if err != nil {
		return nil, err
	}
	return v.Missing, skipped.Result(nil)
}

func (c *command) scanAll(
	ctx context.Context, s *inputs.Setting, v *Violations, resources map[schema.GroupVersionResource]scanned,
) error {
	progress := c.StartProgress("listing")
	defer progress.Stop()
	byName := func(a, b scanned) int {
		return cmp.Compare(a.GroupVersionResource.String(), b.GroupVersionResource.String())
	}
	for _, r := range slices.SortedFunc(maps.Values(resources), byName) {
		progress.Begin("listing "+r.GroupResource().String(), 0)
		err := c.scanResource(ctx, s, v, r)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("listing %s: %w", r.GroupResource(), ctx.Err())
		case err == nil, apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err): // there are no objects
		case apierrors.IsForbidden(err):
			v.miss(r.GroupResource().String(), noAccess+" "+c.where(), true)
		default:
			v.miss(r.GroupResource().String(), err.Error(), true)
		}
	}
	return nil
}

// scanResource evaluates policies on the objects of a resource, of which it holds one page. With a
// namespace, the only object without one is that Namespace.
func (c *command) scanResource(ctx context.Context, s *inputs.Setting, v *Violations, r scanned) error {
	namespace, name := c.GivenNamespace(), ""
	isNamespace := r.GroupResource() == schema.GroupResource{Resource: "namespaces"}
	switch {
	case r.Namespaced || namespace == "":
	case isNamespace:
		namespace, name = "", namespace
	default:
		return nil
	}
	var decoded audit.Decoded
	return s.Cluster.Each(ctx, r.GroupVersionResource, namespace, name, func(u *unstructured.Unstructured) error {
		raw, err := u.MarshalJSON()
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", r.GroupResource(), u.GetName(), err)
		}
		o := &audit.Object{
			Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: u.GetNamespace(), Name: u.GetName(), JSON: raw,
			IsDeleted: u.GetDeletionTimestamp() != nil, KeepsStatus: r.KeepsStatus, Decoded: &decoded,
		}
		if isNamespace {
			o.Namespace = o.Name
		}
		decoded.Next()
		for _, p := range r.policies {
			got := p.Evaluate(ctx, o, s.World)
			f, ok := results.FindingOf(p.Name, o, audit.ControllerOf(u), got)
			if !ok {
				continue
			}
			if v.add(f); c.found == nil {
				continue
			}
			if err := c.found(r.Resource, u, got); err != nil {
				return err
			}
		}
		return nil
	})
}
