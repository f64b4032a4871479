package violations

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
)

// find returns the violations from reports, or from a scan.
func (c *command) find(ctx context.Context) (*Violations, *output.Skipped, error) {
	switch {
	case len(c.Files) > 0:
		return c.fromScan(ctx, "-f names files")
	case c.scan:
		return c.fromScan(ctx, "of --scan")
	}
	v, why, err := c.fromReports(ctx)
	if v == nil && err == nil {
		return c.fromScan(ctx, why)
	}
	return v, output.NewSkipped(c.ErrOut), err
}

// fromReports returns the violations in the reports of Ostiary; nil with the reason if there are
// none to read.
func (c *command) fromReports(ctx context.Context) (v *Violations, why string, err error) {
	config, err := c.Config()
	if err != nil {
		return nil, "", err
	}
	cluster, err := connect.NewCluster(ctx, config)
	if err != nil {
		return nil, "", err
	}
	reports, clusterReports := results.ReportResources()
	if len(cluster.Resources[reports.GroupVersion()]) == 0 {
		return nil, "the cluster does not have the kinds of openreports.io", nil
	}
	v = &Violations{Source: SourceReports, Violations: []Violation{}}
	found := false
	read := func(u *unstructured.Unstructured) error {
		if r, ok := results.ReadReportOf(u); ok {
			found = true
			c.addReport(v, u.GetNamespace(), r)
		}
		return nil
	}
	err = cluster.Each(ctx, reports, c.GivenNamespace(), "", read)
	switch {
	case apierrors.IsForbidden(err):
		return nil, "you may not list reports.openreports.io " + c.where(), nil
	case err != nil:
		return nil, "", err
	}
	if c.GivenNamespace() == "" {
		err = cluster.Each(ctx, clusterReports, "", "", read)
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, "", err
		}
		if err != nil {
			v.miss(clusterReports.GroupResource().String(), noAccess, true)
		}
	}
	if !found {
		return nil, "Ostiary has written no report " + c.where(), nil
	}
	return v, "", c.addPolicies(ctx, cluster, v)
}

// where is the part of the cluster that the result is about.
func (c *command) where() string {
	if c.GivenNamespace() == "" {
		return "in all namespaces (-n names one)"
	}
	return fmt.Sprintf("in namespace %q", c.GivenNamespace())
}

// shows reports whether the violations of a policy are shown.
func (c *command) shows(policy string) bool {
	return len(c.policies) == 0 || slices.Contains(c.policies, policy)
}

func (c *command) addReport(v *Violations, namespace string, r results.ReadReport) {
	shown := 0
	for _, f := range r.Findings {
		if c.shows(f.Policy) {
			v.add(f)
			shown++
		}
	}
	for _, skipped := range r.Skipped {
		if c.shows(skipped.Policy) {
			v.miss(skipped.Policy, skipped.Why, skipped.IsUnread)
		}
	}
	if r.Omitted > 0 {
		of := "the cluster"
		if namespace != "" {
			of = "namespace " + namespace
		}
		text := output.Count(int(r.Omitted), "violation", "violations") + " of all policies without a line in the report: use --scan"
		v.miss(of, text, shown == 0)
	}
	if !r.Written.IsZero() {
		v.addAge(r.Written)
	}
}

func (v *Violations) addAge(written time.Time) {
	if v.OldestReport == nil || written.Before(*v.OldestReport) {
		v.OldestReport = &written
	}
	if v.NewestReport == nil || written.After(*v.NewestReport) {
		v.NewestReport = &written
	}
}

// addPolicies adds what the audit does not include, from the statuses of policies, and rejects
// names that no policy has.
func (c *command) addPolicies(ctx context.Context, cluster *connect.Cluster, v *Violations) error {
	policies := v1alpha1.GroupVersion.WithResource("webhookpolicies")
	var names []string
	err := cluster.Each(ctx, policies, "", "", func(u *unstructured.Unstructured) error {
		names = append(names, u.GetName())
		if c.shows(u.GetName()) {
			v.addStatus(u)
		}
		return nil
	})
	if apierrors.IsForbidden(err) {
		reason := noAccess + ": which policies there are, and what the audit could not read, is not known"
		v.miss(policies.GroupResource().String(), reason, false)
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range c.policies {
		if !slices.Contains(names, name) && !strings.HasPrefix(name, results.NativePrefix) {
			return inputs.UnknownPolicyError(name, names)
		}
	}
	return nil
}

// addStatus adds what the audit does not include of a policy.
func (v *Violations) addStatus(policy *unstructured.Unstructured) {
	status, isAudited, _ := unstructured.NestedMap(policy.Object, "status", "audit")
	if !isAudited {
		if !v.isUnread(policy.GetName()) { // otherwise the report says more
			v.miss(policy.GetName(), "this generation has not been evaluated on all stored objects yet", true)
		}
		return
	}
	summary, _, _ := unstructured.NestedString(status, "summary")
	missing, _, _ := unstructured.NestedStringSlice(status, "missing")
	for _, why := range missing {
		v.miss(policy.GetName(), why, summary != v1alpha1.AuditNotAudited)
	}
}
