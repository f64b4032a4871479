package manager

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// The API server serves a new kind a moment after its definition was applied.
const (
	kindTimeout  = 20 * time.Second
	kindInterval = 500 * time.Millisecond
)

// awaitManager returns a manager as soon as the API server has the kind WebhookPolicy.
// It returns an error if the kind lacks a field that this version knows.
func awaitManager(
	ctx context.Context, config *rest.Config, log logr.Logger, transform toolscache.TransformFunc, version versionskew.Version,
) (mgr manager.Manager, err error) {
	waiting := false
	_ = wait.PollUntilContextTimeout(ctx, kindInterval, kindTimeout, true, func(context.Context) (bool, error) {
		mgr, err = newManager(config, log, transform, version)
		if !meta.IsNoMatchError(err) {
			return true, nil
		}
		if !waiting {
			log.Info("Waiting for the kind WebhookPolicy", "timeout", kindTimeout.String())
			waiting = true
		}
		return false, nil
	})
	if meta.IsNoMatchError(err) {
		err = fmt.Errorf("the API server has no WebhookPolicy in %s: apply config/crd first", v1alpha1.GroupVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	return mgr, awaitFields(ctx, config, log, version.Fields)
}

// awaitFields returns an error if the API server drops fields of policies or exceptions that this
// version knows: a policy could then mean something else than its author wrote, and no replica could
// find out. Without this version, no document and no tool promises the effect of the fields.
func awaitFields(ctx context.Context, config *rest.Config, log logr.Logger, known versionskew.Fields) error {
	var of string
	var missing []string
	var err error
	_ = wait.PollUntilContextTimeout(ctx, kindInterval, kindTimeout, true, func(context.Context) (bool, error) {
		of, missing, err = missingFields(config, known)
		return err == nil && len(missing) == 0, nil
	})
	switch {
	case err != nil:
		log.Error(err, "reading which fields of policies and exceptions the API server knows failed: if the CustomResourceDefinitions are "+
			"older than this version, the API server drops fields")
		return nil //nolint:nilerr // a replica that cannot find out works as one without the check
	case len(missing) > 0:
		return fmt.Errorf("the API server drops fields from %s that this version of Ostiary knows: %s: apply config/crd of this version first",
			of, strings.Join(missing, ", "))
	}
	return nil
}

// missingFields returns the fields of policies, or else of exceptions, that an API server does not accept, and
// which of them it returns.
func missingFields(config *rest.Config, known versionskew.Fields) (of string, fields []string, err error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", nil, fmt.Errorf("making a client for schemas: %w", err)
	}
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		return "", nil, fmt.Errorf("reading the paths of schemas: %w", err)
	}
	document := paths["apis/"+v1alpha1.GroupVersion.String()]
	if document == nil {
		return "", nil, fmt.Errorf("the API server has no schema of %s", v1alpha1.GroupVersion)
	}
	schema, err := document.Schema(runtime.ContentTypeJSON)
	if err != nil {
		return "", nil, fmt.Errorf("reading the schema of %s: %w", v1alpha1.GroupVersion, err)
	}
	for _, kind := range []struct{ name, plural string }{
		{"WebhookPolicy", "policies"}, {"WebhookPolicyException", "exceptions"}, {"ClusterWebhookPolicyException", "exceptions"},
	} {
		served, err := versionskew.FieldsOfOpenAPI(schema, kind.name)
		if err != nil {
			return "", nil, err
		}
		if missing := served.Missing(known); len(missing) > 0 {
			return kind.plural, missing, nil
		}
		known = versionskew.KnownExceptionFields() // of the others
	}
	return "", nil, nil
}
