package sources

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/images"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/lookups"
	"github.com/ostiary/ostiary/controllers/params"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/resources"
	"github.com/ostiary/ostiary/controllers/schemas"
	"github.com/ostiary/ostiary/controllers/typechecking"
	"github.com/ostiary/ostiary/controllers/versions"
	"github.com/ostiary/ostiary/internal/cachebudget"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins"
	"github.com/ostiary/ostiary/internal/policy"
)

// Options configures Sources.
type Options struct {
	Config *rest.Config
	Client kubernetes.Interface
	// Namespace is Ostiary's namespace.
	Namespace string
	// ParamsAccount is the ServiceAccount in Namespace that Ostiary impersonates to read
	// params. It limits what authors of policies can read. Empty means Ostiary's own.
	ParamsAccount string
	// CacheMemory limits the memory of cached objects, in bytes. 0 means DefaultCacheMemory.
	CacheMemory int64
	// Lookups limits the lookups of policies. Its clients, Account, Log and Registerer are set here.
	Lookups    lookups.Options
	Log        logr.Logger
	Registerer prometheus.Registerer
}

// DefaultCacheMemory is the default limit of the memory of cached objects.
const DefaultCacheMemory = 64 << 20

// Sources provides the objects that evaluations read besides the request.
type Sources struct {
	Params        *params.Store // of policies
	PluginObjects *params.Store // listed by plugins
	Lookups       *lookups.Store
	Images        *images.Store
	Resources     *resources.Resources
	Schemas       *schemas.Converters
	Types         *typechecking.Checker
	Versions      *versions.Detector

	policies atomic.Pointer[[]*v1alpha1.WebhookPolicy]
	kept     events.Signal // policies has changed
	params   params.Options
}

// New returns Sources. The caller must start its Runnables.
func New(o Options) (*Sources, error) {
	known, err := discovery.NewDiscoveryClientForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client for discovery: %w", err)
	}
	known.UseLegacyDiscovery = true // aggregated discovery does not name equivalent resources
	s := &Sources{
		Images:    images.New(o.Client, o.Namespace, o.Log.WithName("images")),
		Resources: resources.New(known, o.Log.WithName("resources")),
		kept:      events.NewSignal(),
	}
	if s.Versions, err = versions.New(o.Config, o.Log.WithName("versions")); err != nil {
		return nil, err
	}
	s.Versions.Check(context.Background()) // so that the first load is rarely repeated
	s.Schemas = schemas.New(known.OpenAPIV3(), s.Resources, o.Log.WithName("schemas"))
	s.Types = typechecking.New(typechecking.Options{
		Client:         known.OpenAPIV3WithContext(context.Background()),
		Resources:      s.Resources,
		Engines:        s.Versions,
		TypeConverters: s.Schemas,
		Objects:        s.Resources.Interfaces(scheme.Scheme),
		Log:            o.Log.WithName("typechecking"),
	})
	if err := s.addStores(o, known); err != nil {
		return nil, err
	}
	if err := s.addLookups(o, known); err != nil {
		return nil, err
	}
	return s, nil
}

// lookupsAccount is the ServiceAccount whose permissions limit what lookups read.
const lookupsAccount = "ostiary-lookups"

func (s *Sources) addLookups(o Options, known lookups.Discovery) error {
	config := rest.CopyConfig(o.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: serviceaccount.MakeUsername(o.Namespace, lookupsAccount)}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for lookups: %w", err)
	}
	l := o.Lookups
	l.REST, l.Account, l.Discovery = client.CoreV1().RESTClient(), o.Namespace+"/"+lookupsAccount, known
	l.Log, l.Registerer = o.Log.WithName("lookups"), o.Registerer
	s.Lookups = lookups.New(l)
	return nil
}

func (s *Sources) addStores(o Options, known params.Discovery) error {
	memory := params.NewMemory(cachebudget.New(cmp.Or(o.CacheMemory, DefaultCacheMemory)), o.Registerer)
	ownAccount := o.Namespace + "/ostiary"
	own := params.Options{Account: ownAccount, Discovery: known, Memory: memory, Name: "plugin-objects", Log: o.Log.WithName("objects")}
	if err := addClients(&own, o.Config); err != nil {
		return fmt.Errorf("making clients for plugins: %w", err)
	}
	s.PluginObjects = params.New(own)
	config, p := o.Config, own
	p.Name, p.Log, p.Registerer = "params", o.Log.WithName("params"), o.Registerer
	if o.ParamsAccount != "" {
		config = rest.CopyConfig(o.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: serviceaccount.MakeUsername(o.Namespace, o.ParamsAccount)}
		p.Account, p.Aggregated = o.Namespace+"/"+o.ParamsAccount, true
	}
	if err := addClients(&p, config); err != nil {
		return fmt.Errorf("making clients for params: %w", err)
	}
	s.Params = params.New(p)
	s.params = p
	s.params.Name, s.params.Registerer = "native-params", nil // a metric has one store
	return nil
}

func addClients(o *params.Options, config *rest.Config) (err error) {
	if o.Client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	o.REST = client.CoreV1().RESTClient()
	return nil
}

// NewParams returns a further store for params, which reads with the same permissions.
func (s *Sources) NewParams() *params.Store { return params.New(s.params) }

// Runnables returns what every replica runs. The leader also runs Types.
func (s *Sources) Runnables() []manager.Runnable {
	return []manager.Runnable{s.Params, s.PluginObjects, s.Lookups, s.Images, s.Resources, s.Schemas, s.Versions, follower{s}}
}

// Prepare sets the policies whose dependencies are read.
func (s *Sources) Prepare(policies []*v1alpha1.WebhookPolicy, needs policies.Needs) {
	var unread []admissionregistrationv1.ParamKind
	var listed []policy.ParamNeed
	var backends []pluginapi.SecretKey
	for _, p := range policies {
		if p.Spec.ParamKind != nil && !p.Spec.ReadsParams() {
			unread = append(unread, *p.Spec.ParamKind)
		}
		for _, kind := range plugins.KindsOf(p) {
			listed = append(listed, policy.ParamNeed{Kind: kind, Reads: policy.WholeParams()})
		}
		if key, ok := plugins.BackendOf(p); ok {
			backends = append(backends, key)
		}
	}
	s.Images.Want(backends)
	s.Params.Want(needs.Params, unread...)
	s.Lookups.Want(needs.Lookups)
	s.PluginObjects.Want(listed)
	s.keep(policies)
	s.Schemas.Want(policies)
	s.Types.Want(policies)
}

// needsResources reports whether a policy depends on equivalent resources or on
// the kinds of resources.
func needsResources(p *v1alpha1.WebhookPolicy) bool {
	constraints := p.Spec.MatchConstraints
	return len(p.Spec.Mutations) > 0 || plugins.ReadsKinds(p) ||
		(constraints != nil && (len(constraints.ExcludeResourceRules) > 0 || slices.ContainsFunc(constraints.ResourceRules, hasResourceNames))) ||
		slices.ContainsFunc(p.Spec.Bindings, func(b v1alpha1.Binding) bool { return b.MatchResources != nil })
}

// hasResourceNames reports whether a rule is limited to some names. If such a rule
// does not match, one for an equivalent resource may.
func hasResourceNames(r admissionregistrationv1.NamedRuleWithOperations) bool {
	return len(r.ResourceNames) > 0
}
