package configurations

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/registration"
)

// deleteClient is an applyClient that records deletions.
type deleteClient struct {
	applyClient
	deleted []string
}

func (c *deleteClient) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	c.deleted = append(c.deleted, object.GetName())
	return nil
}

// Ostiary's own configurations are created, repaired and deleted, independently of
// each other.
func TestReconcileOwn(t *testing.T) {
	own := registration.Own{
		Endpoint: registration.Endpoint{URL: "https://h"},
		CABundle: []byte("b"),
		Epoch:    7,
		Owner:    metav1.OwnerReference{UID: "crd"},
	}
	mutate, validate, review := own.Canary(registration.PhaseMutate, "ns"), own.Canary(registration.PhaseValidate, "ns"), own.Review()
	edited := func(c registration.Configuration, edit func(registration.Configuration)) registration.Configuration {
		out, _ := c.DeepCopyObject().(registration.Configuration)
		edit(out)
		return out
	}
	withoutOwner := edited(mutate, func(c registration.Configuration) { c.SetOwnerReferences(nil) })
	withoutLabels := edited(review, func(c registration.Configuration) { c.SetLabels(nil) })
	newer := own
	newer.Epoch = 8
	failing := errors.New("storage is full")
	tests := map[string]struct {
		observed    []registration.Configuration
		wants       []registration.Configuration
		errs        map[string]error // of writes, by name
		wantApplied []string
		wantDeleted []string
		wantErr     bool
	}{
		"all are missing": {
			wants:       []registration.Configuration{mutate, validate, review},
			wantApplied: []string{mutate.GetName(), validate.GetName(), review.GetName()},
		},
		"all are up to date": {
			wants:    []registration.Configuration{mutate, validate, review},
			observed: []registration.Configuration{mutate, validate, review},
		},
		"an owner is missing": {
			wants:       []registration.Configuration{mutate, validate},
			observed:    []registration.Configuration{withoutOwner, validate},
			wantApplied: []string{mutate.GetName()},
		},
		"labels are missing": {
			wants:       []registration.Configuration{mutate, review},
			observed:    []registration.Configuration{mutate, withoutLabels},
			wantApplied: []string{review.GetName()},
		},
		"review is disabled": {
			wants:       []registration.Configuration{mutate},
			observed:    []registration.Configuration{mutate, review},
			wantDeleted: []string{review.GetName()},
		},
		"a newer trust bundle": {
			wants:       []registration.Configuration{mutate, validate},
			observed:    []registration.Configuration{newer.Canary(registration.PhaseMutate, "ns")},
			wantApplied: []string{validate.GetName()},
			wantErr:     true,
		},
		"one write fails": {
			wants:       []registration.Configuration{mutate, validate},
			errs:        map[string]error{mutate.GetName(): failing},
			wantApplied: []string{mutate.GetName(), validate.GetName()},
			wantErr:     true,
		},
		"none and none observed": {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var applied []string
			api := &deleteClient{applyClient: applyClient{apply: func(name string) error {
				applied = append(applied, name)
				return tt.errs[name]
			}}}
			leading := newTestTerm(api, clock.RealClock{})
			leading.Own = func(context.Context) ([]registration.Configuration, error) { return tt.wants, nil }
			p := newPass(tt.observed)
			p.gate = &ReplicaSnapshot{}
			if err := leading.reconcileOwn(t.Context(), p); (err != nil) != tt.wantErr {
				t.Errorf("error %v, want one: %t", err, tt.wantErr)
			}
			if diff := cmp.Diff(tt.wantApplied, applied); diff != "" {
				t.Errorf("applied (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantDeleted, api.deleted); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
		})
	}
}
