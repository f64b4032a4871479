// Package certmanager tests the manager with the controllers of cert-manager.
//
// It is a separate module, so that their dependencies are not dependencies of the manager.
package certmanager

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"   // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"         // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned" // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"           // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"        // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"         // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"    // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"   // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"           // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"                        // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"                                 // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"                         // registers itself
	"golang.org/x/sync/errgroup"
)

// workers is how many objects each controller looks at at a time.
const workers = 2

// runControllers puts cert-manager's controllers together as its own program
// does, and runs them until ctx ends.
func runControllers(ctx context.Context, kubeconfig, namespace string) (wait func() error, err error) {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig: kubeconfig,
		Namespace:  namespace,
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Second,
			CertificateRequestMaximumBackoffDuration: time.Second,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("putting cert-manager together: %w", err)
	}
	shared, err := factory.Build()
	if err != nil {
		return nil, fmt.Errorf("putting cert-manager together: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for name, construct := range controller.Known() {
		c, err := construct(factory)
		if err != nil {
			return nil, fmt.Errorf("making cert-manager's controller %s: %w", name, err)
		}
		group.Go(func() error { return c.Run(workers, ctx) })
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	return group.Wait, nil
}

// manifests are the files with the CustomResourceDefinitions that the module
// ships, which stands in the directory.
func manifests(module string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(module, "deploy", "crds", "cert-manager.io_*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("finding the CustomResourceDefinitions of cert-manager in %s: %d files, %w", module, len(files), err)
	}
	slices.Sort(files)
	return files, nil
}
