package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/test/bench"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/manager"
)

const (
	systemNamespace = "ostiary-system"
	benchNamespace  = "bench"

	// applyWorkers is how many policies are applied at a time.
	applyWorkers = 8
	// waitTimeout bounds each wait for the manager, which ordinarily takes seconds.
	waitTimeout = 2 * time.Minute
)

// world is a control plane with Ostiary installed and the no-op beside it. The
// manager is started anew for every set.
type world struct {
	options options
	log     *log.Logger
	cp      *controlplane.ControlPlane
	client  client.Client
	address string // that the manager answers on
	// versions of the API servers. All measurements but the comparisons use the first.
	versions []string
	noop     server
	manager  *controlplane.Running
	// timeout bounds each wait for the manager.
	timeout time.Duration
}

// server is a webhook server that runs.
type server struct {
	target
	running *controlplane.Running
	url     string
	bundle  []byte
}

func newWorld(ctx context.Context, o options, logger *log.Logger) (_ *world, err error) {
	w := &world{options: o, log: logger, timeout: waitTimeout}
	w.log.Print("Starting a Kubernetes control plane")
	// Nothing is measured that needs the controller manager, which would compete.
	w.cp, err = controlplane.Start(ctx, controlplane.Options{NoControllerManager: true, ArgsOf: withoutOtherEngine, Log: logger.Writer()})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.address, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	if err := w.startVersions(ctx); err != nil {
		return w, err
	}
	w.log.Print("Installing Ostiary")
	if err := w.install(ctx); err != nil || len(o.sets)+len(o.compare) == 0 {
		return w, err
	}
	w.log.Print("Building and starting a webhook that allows everything")
	w.noop, err = w.startNoop(ctx)
	return w, err
}

// apiServer is the number of the API server of a version that a side asks. The native side
// has one of its own, which calls no webhook. The other sides have one without the native
// engine: it would match each request with all policies, also where none applies, and the
// cost would count as that of no policies.
func apiServer(version int, side bench.Side) int {
	if side == bench.Native {
		return 2*version + 1
	}
	return 2 * version
}

// withoutOtherEngine are the flags of an API server.
func withoutOtherEngine(number int, _ []string) []string {
	if number == apiServer(number/2, bench.Native) {
		return []string{"--disable-admission-plugins=ValidatingAdmissionWebhook,MutatingAdmissionWebhook"}
	}
	return []string{"--disable-admission-plugins=ValidatingAdmissionPolicy,MutatingAdmissionPolicy"}
}

// startVersions adds the other API servers that a comparison needs, and asks for their
// versions.
func (w *world) startVersions(ctx context.Context) error {
	programs := []string{""}
	if len(w.options.compare) > 0 && w.options.later != "" {
		program, err := filepath.Abs(w.options.later) // it runs in another folder
		if err != nil {
			return fmt.Errorf("finding %s: %w", w.options.later, err)
		}
		programs = append(programs, program)
	}
	for version, program := range programs {
		for _, side := range []bench.Side{bench.Ostiary, bench.Native} {
			if number := apiServer(version, side); number == 0 || len(w.options.compare) == 0 {
				continue
			}
			if _, err := w.cp.AddAPIServer(ctx, program); err != nil {
				return err
			}
		}
		client, err := discovery.NewDiscoveryClientForConfig(w.cp.Config(apiServer(version, bench.Ostiary)))
		if err != nil {
			return fmt.Errorf("making a client: %w", err)
		}
		v, err := client.ServerVersion()
		if err != nil {
			return fmt.Errorf("reading the version of an API server: %w", err)
		}
		w.versions = append(w.versions, strings.TrimPrefix(v.GitVersion, "v"))
	}
	return nil
}

// close kills what runs: none of it has anything to save.
func (w *world) close() error {
	for _, running := range []*controlplane.Running{w.manager, w.noop.running} {
		if running != nil {
			running.Kill()
		}
	}
	return w.cp.Stop()
}

// freeAddress picks an address without a listener, below the ports that
// outgoing connections take: it has to be free again after the manager was killed.
func freeAddress(ctx context.Context) (string, error) {
	var err error
	for range 100 {
		var listener net.Listener
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(10000)))
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address); err == nil {
			return address, listener.Close()
		}
	}
	return "", fmt.Errorf("choosing a port: %w", err)
}

func (w *world) install(ctx context.Context) error {
	all := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(all), v1alpha1.AddToScheme(all)); err != nil {
		return err
	}
	config := w.cp.Config()
	config.WarningHandler = rest.NoWarnings{}
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{
		Paths:              []string{"config/crd/bases"},
		ErrorIfPathMissing: true,
	}); err != nil {
		return fmt.Errorf("installing the CustomResourceDefinition: %w", err)
	}
	var err error
	if w.client, err = client.New(config, client.Options{Scheme: all}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchNamespace, Labels: bench.NamespaceLabels()}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bench.ReviewNamespace, Labels: bench.NamespaceLabels()}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bench.ParamsNamespace}},
	} {
		if err := w.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating namespace %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// startNoop builds and starts the webhook that allows everything.
func (w *world) startNoop(ctx context.Context) (server, error) {
	program := filepath.Join(w.cp.Dir(), "noop")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", program, "./hack/bench/noop")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return server{}, fmt.Errorf("building the no-op: %w\n%s", err, out)
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return server{}, fmt.Errorf("making the no-op's certificate: %w", err)
	}
	for name, content := range map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM} {
		if err := os.WriteFile(filepath.Join(w.cp.Dir(), name), content, 0o600); err != nil {
			return server{}, fmt.Errorf("writing the no-op's certificate: %w", err)
		}
	}
	var url string
	running, err := w.cp.Run(ctx, controlplane.Program{
		Name: "noop", Path: program, Ports: 2,
		Args: func(ports []int) []string {
			url = fmt.Sprintf("https://127.0.0.1:%d/validate", ports[0])
			return []string{"-port=" + strconv.Itoa(ports[0]), "-health=127.0.0.1:" + strconv.Itoa(ports[1]), "-cert-dir=" + w.cp.Dir()}
		},
		Probes: func(ports []int) []string { return []string{fmt.Sprintf("http://127.0.0.1:%d/", ports[1])} },
	})
	if err != nil {
		return server{}, err
	}
	t, err := newTarget(certPEM, url+"?timeout=5s")
	return server{t, running, url, certPEM}, err
}

// startManager starts a new manager in place of the one before, and takes the
// lease from that so that the new one leads at once.
func (w *world) startManager(ctx context.Context) error {
	if w.manager != nil {
		w.manager.Kill()
		w.manager = nil
	}
	if err := w.client.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(systemNamespace)); err != nil {
		return fmt.Errorf("taking the lease from the manager before: %w", err)
	}
	running, err := manager.Start(ctx, w.cp, manager.Options{Path: w.options.manager, WebhookAddress: w.address})
	if err != nil {
		return err
	}
	w.manager = running
	return nil
}

// apply creates policies, in their order.
func (w *world) apply(ctx context.Context, policies []*v1alpha1.WebhookPolicy) error {
	errs := make([]error, len(policies))
	workqueue.ParallelizeUntil(ctx, applyWorkers, len(policies), func(i int) {
		errs[i] = w.client.Create(ctx, policies[i])
	})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("applying the policies: %w", err)
	}
	return context.Cause(ctx)
}

func (w *world) awaitReady(ctx context.Context, want int) error {
	return w.await(ctx, 200*time.Millisecond, fmt.Sprintf("%d policies are Ready", want), func() (bool, error) {
		var list v1alpha1.WebhookPolicyList
		err := w.client.List(ctx, &list)
		ready := 0
		for i := range list.Items {
			if apimeta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
				ready++
			}
		}
		return ready == want, err
	})
}

// awaitChecked waits until the leader has checked the types of all policies.
func (w *world) awaitChecked(ctx context.Context) error {
	return w.await(ctx, 200*time.Millisecond, "all policies' types are checked", func() (bool, error) {
		var list v1alpha1.WebhookPolicyList
		err := w.client.List(ctx, &list)
		return !slices.ContainsFunc(list.Items, func(p v1alpha1.WebhookPolicy) bool { return p.Status.TypeChecking == nil }), err
	})
}

// clear removes all policies and params, and returns when nothing is registered for them.
func (w *world) clear(ctx context.Context) error {
	if err := w.client.DeleteAllOf(ctx, &v1alpha1.WebhookPolicy{}); err != nil {
		return fmt.Errorf("deleting the policies: %w", err)
	}
	if err := w.client.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(bench.ParamsNamespace)); err != nil {
		return fmt.Errorf("deleting the params: %w", err)
	}
	return w.await(ctx, 100*time.Millisecond, "no configuration is left", func() (bool, error) {
		list, err := w.configurations(ctx)
		return len(list) == 0, err
	})
}

func (w *world) await(ctx context.Context, every time.Duration, what string, reached func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	for {
		ok, err := reached()
		if ok && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w\nThe manager's log ends with:\n%s", what,
				errors.Join(context.Cause(ctx), err), w.manager.LogTail())
		case <-w.manager.Done():
			return fmt.Errorf("waiting until %s: the manager ended by itself; its log ends with:\n%s", what, w.manager.LogTail())
		case <-time.After(every):
		}
	}
}

// configurations are those of policies: Ostiary has some for itself besides.
func (w *world) configurations(ctx context.Context) ([]admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	var list admissionregistrationv1.ValidatingWebhookConfigurationList
	err := w.client.List(ctx, &list)
	return slices.DeleteFunc(list.Items, func(c admissionregistrationv1.ValidatingWebhookConfiguration) bool {
		_, ok := registration.GroupOf(&c)
		return !ok
	}), err
}

// target is what an API server calls of the manager for a pod in the namespace
// of the benchmark, by what is registered.
func (w *world) target(ctx context.Context) (target, error) {
	configurations, err := w.configurations(ctx)
	if err != nil {
		return target{}, fmt.Errorf("reading the configurations: %w", err)
	}
	var urls []string
	var bundle []byte
	for i := range configurations {
		for _, hook := range configurations[i].Webhooks {
			if hook.ClientConfig.URL == nil {
				continue
			}
			called, err := bench.Called(ctx, hook.Rules, hook.MatchConditions)
			if err != nil {
				return target{}, fmt.Errorf("reading the webhook %s: %w", hook.Name, err)
			}
			if called {
				urls = append(urls, fmt.Sprintf("%s?timeout=%ds", *hook.ClientConfig.URL, *hook.TimeoutSeconds))
				bundle = hook.ClientConfig.CABundle
			}
		}
	}
	return newTarget(bundle, urls...)
}
