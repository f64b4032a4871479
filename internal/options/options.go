// Package options declares the manager's flags with their defaults, and validates
// them before the manager starts.
package options

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/internal/pki"
	"github.com/ostiary/ostiary/internal/sensitive"
)

// DefaultNamespace is the namespace of Ostiary's Secrets and Leases.
const DefaultNamespace = "ostiary-system"

// maxDrain is longer than the 90 s after which API servers close idle connections.
const maxDrain = 110 * time.Second

// ServiceReference names the Service that the API server calls.
type ServiceReference struct {
	Namespace, Name string
	Port            int32
}

// Options are the manager's settings.
type Options struct {
	Kubeconfig       string
	Namespace        string
	WebhookAddress   string
	WebhookService   string
	WebhookURL       string
	MetricsAddress   string
	MetricsAuth      bool
	HealthAddress    string
	LeaderElect      bool
	ExemptNamespaces []string
	PolicyWebhook    bool
	BreakGlass       bool
	LogLevel         string
	LogFormat        string
	DrainMin         time.Duration
	DrainMax         time.Duration
	// Load bounds concurrent work.
	Load Load
	// Certificates holds lifetimes of certificates. Zero fields have defaults.
	Certificates pki.Config
	// CertManagerIssuer and CertificateSecret name an external source of the serving
	// certificate. If both are empty, Ostiary issues it.
	CertManagerIssuer string
	CertificateSecret string
	// ClientCA, ClientNames and the two Secrets authenticate callers. If all are
	// empty, every caller is accepted.
	ClientCA          string
	ClientNames       []string
	CallerTokenSecret string
	CallerBasicSecret string
	// Authors limits the access that authors of policies have through Ostiary.
	Authors Authors
	Audit   Audit
	// Lookups bounds what policies keep of other objects.
	Lookups Lookups
	// AssumeRolloutsComplete begins rollouts without a recorded state with their final action.
	AssumeRolloutsComplete bool
	// ReportViolations says where requests that violate policies are reported.
	ReportViolations []string
	// ReportValues lets reports of violations hold values of objects, except of sensitive resources: the defaults of package
	// sensitive and SensitiveResources.
	ReportValues       bool
	SensitiveResources []string
}

// Bind declares the flags, with their defaults, on a flag set.
func (o *Options) Bind(f *pflag.FlagSet) {
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file for use outside of a cluster; default: $KUBECONFIG, then the ServiceAccount of the Pod")
	f.StringVar(&o.Namespace, "namespace", DefaultNamespace, "Ostiary's own namespace, which holds its certificates and Leases and is exempt from every policy")
	f.StringVar(&o.WebhookAddress, "webhook-address", ":10250", "listen address for admission calls, host:port")
	f.StringVar(&o.WebhookService, "webhook-service", "", "Service that the API server calls, namespace/name:port; default: <namespace>/ostiary-webhook:443")
	f.StringVar(&o.WebhookURL, "webhook-url", "", "https URL that the API server calls instead of a Service, if the manager runs outside of the cluster")
	f.StringVar(&o.MetricsAddress, "metrics-address", ":8443", "listen address for metrics, host:port; 0 disables them")
	f.BoolVar(&o.MetricsAuth, "metrics-auth", true, "serve metrics over HTTPS with the serving certificate, to clients whose token has the RBAC permission get on /metrics; if false, over HTTP to every client")
	f.StringVar(&o.HealthAddress, "health-address", ":8081", "listen address for /healthz and /readyz, host:port; 0 disables them")
	f.BoolVar(&o.LeaderElect, "leader-elect", true, "elect one replica that writes to the API server; every replica answers admission calls")
	f.StringSliceVar(&o.ExemptNamespaces, "exempt-namespaces", nil, "namespaces that are exempt from every policy, in addition to Ostiary's own, kube-system and kube-node-lease")
	f.BoolVar(&o.PolicyWebhook, "policy-webhook", true, "reject invalid WebhookPolicies at apply time, and return warnings for risky ones; if false, only their status and events show problems")
	f.BoolVar(&o.BreakGlass, "break-glass", false, "let users skip every policy on which RBAC grants them the verb breakglass, as if each policy had breakGlass: true")
	f.DurationVar(&o.DrainMin, "drain-min", 15*time.Second, "minimum time for which the manager answers after SIGTERM, because API servers learn late that a replica is gone")
	f.DurationVar(&o.DrainMax, "drain-max", maxDrain, "time after SIGTERM at which the remaining connections are closed; API servers close idle ones after 90s, and do not retry a call on a closing connection")
	f.BoolVar(&o.AssumeRolloutsComplete, "assume-rollouts-complete", false,
		"begin rollouts without a recorded state with their final action, "+
			"after the statuses of policies were lost, as by a restore; remove it afterwards, because new policies then begin with it, too")
	o.bindAuthors(f)
	o.bindAudit(f)
	o.bindLoad(f)
	o.bindLookups(f)
	o.bindCertificates(f)
	f.StringVar(&o.ClientCA, "client-ca", "", "PEM file with the CA of the client certificates of API servers; callers without such a certificate or another accepted credential get 401; requires --client-names")
	f.StringSliceVar(&o.ClientNames, "client-names", nil, "accepted names in client certificates: common names, DNS names or URIs, compared exactly")
	f.StringVar(&o.CallerTokenSecret, "caller-token-secret", "", "Secret in Ostiary's namespace with the accepted bearer tokens of API servers, one in each field")
	f.StringVar(&o.CallerBasicSecret, "caller-basic-secret", "", "Secret in Ostiary's namespace with the accepted user name of API servers in the field username, and accepted passwords in the other fields")
	f.StringSliceVar(&o.ReportViolations, "report-violations", nil, "where requests are reported that policies deny, warn about, audit or cannot evaluate: log (lines of JSON on the standard output), events (Events in the namespace of the object), or both")
	f.BoolVar(&o.ReportValues, "report-values", false, "let lines and Events of violations, and reports of the audit, hold values of objects: results of messageExpression, texts of errors and messages of plugins; never of sensitive resources")
	f.StringSliceVar(&o.SensitiveResources, "sensitive-resources", nil, "resources whose values are in no report, as resource, resource.group or *.group, each alone or with /subresource; in addition to "+strings.Join(sensitive.Defaults(), ", "))
	f.StringVar(&o.LogLevel, "log-level", "info", "minimum level of log lines: "+choice(logLevels()))
	f.StringVar(&o.LogFormat, "log-format", "json", "format of log lines: "+choice(logFormats()))
}

func (o *Options) bindCertificates(f *pflag.FlagSet) {
	c, d := &o.Certificates, pki.Config{}.WithDefaults()
	f.DurationVar(&c.CALifetime, "ca-lifetime", d.CALifetime, "how long a new CA is valid")
	f.DurationVar(&c.CARenewAfter, "ca-renew-after", 0, "age at which the CA is renewed; default: half of its lifetime")
	f.DurationVar(&c.LeafLifetime, "certificate-lifetime", d.LeafLifetime, "how long a new serving certificate is valid")
	f.DurationVar(&c.LeafRenewAfter, "certificate-renew-after", 0, "age at which the serving certificate is renewed; default: two thirds of its lifetime")
	f.DurationVar(&c.Backdate, "certificate-backdate", d.Backdate, "how far in the past the validity of new certificates begins, for API servers whose clock is behind; at most 24h")
	f.StringVar(&o.CertManagerIssuer, "cert-manager-issuer", "", "cert-manager issuer that signs the serving certificate instead of Ostiary, kind/name or kind.group/name, such as ClusterIssuer/internal; an Issuer must be in Ostiary's namespace")
	f.StringVar(&o.CertificateSecret, "certificate-secret", "", "Secret in Ostiary's namespace with an externally managed serving certificate: tls.crt, tls.key and ca.crt; Ostiary never writes it")
	f.DurationVar(&c.Overlap, "trust-overlap", d.Overlap, "how long API servers may use the previous version of a webhook configuration; they resynchronize every 10m")
}

// Validate returns every invalid option, with its flag and a fix.
func (o *Options) Validate() error {
	var errs field.ErrorList
	errs = append(errs, namespace("--namespace", o.Namespace)...)
	for _, ns := range o.ExemptNamespaces {
		errs = append(errs, namespace("--exempt-namespaces", ns)...)
	}
	errs = append(errs, address("--webhook-address", o.WebhookAddress, false)...)
	errs = append(errs, address("--metrics-address", o.MetricsAddress, true)...)
	errs = append(errs, address("--health-address", o.HealthAddress, true)...)
	errs = append(errs, oneOf("--log-level", o.LogLevel, logLevels()...)...)
	errs = append(errs, oneOf("--log-format", o.LogFormat, logFormats()...)...)
	for _, where := range o.ReportViolations {
		errs = append(errs, oneOf("--report-violations", where, violationReports()...)...)
	}
	if _, err := sensitive.New(o.SensitiveResources...); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("--sensitive-resources"), strings.Join(o.SensitiveResources, ","), err.Error()))
	}
	errs = append(errs, o.validateDrain()...)
	errs = append(errs, o.validateLoad()...)
	errs = append(errs, o.validateEndpoint()...)
	errs = append(errs, o.validateCertificates()...)
	errs = append(errs, o.validateSource()...)
	errs = append(errs, o.validateCallers()...)
	errs = append(errs, o.validateAuthors()...)
	errs = append(errs, o.validateAudit()...)
	errs = append(errs, o.validateLookups()...)
	return errs.ToAggregate()
}

func (o *Options) validateDrain() field.ErrorList {
	switch {
	case o.DrainMin <= 0 || o.DrainMin > maxDrain:
		return field.ErrorList{field.Invalid(field.NewPath("--drain-min"), o.DrainMin.String(), "give a duration above 0s and up to "+maxDrain.String())}
	case o.DrainMax < o.DrainMin:
		return field.ErrorList{field.Invalid(field.NewPath("--drain-max"), o.DrainMax.String(), "give at least --drain-min")}
	}
	return nil
}

func (o *Options) validateCertificates() field.ErrorList {
	var invalid *pki.ConfigError
	config := o.Certificates.WithDefaults()
	config.External = o.ExternalCertificate()
	if err := config.Validate(); errors.As(err, &invalid) {
		return field.ErrorList{field.Invalid(field.NewPath(certificateFlag(invalid.Field)), invalid.Value.String(), invalid.Detail)}
	}
	return nil
}

func certificateFlag(name string) string {
	switch name {
	case "CALifetime":
		return "--ca-lifetime"
	case "CARenewAfter":
		return "--ca-renew-after"
	case "LeafLifetime":
		return "--certificate-lifetime"
	case "LeafRenewAfter":
		return "--certificate-renew-after"
	case "Backdate":
		return "--certificate-backdate"
	}
	return "--trust-overlap"
}

func (o *Options) validateEndpoint() field.ErrorList {
	if o.WebhookURL != "" && o.WebhookService != "" {
		return field.ErrorList{field.Forbidden(field.NewPath("--webhook-url"), "give either --webhook-url or --webhook-service, not both")}
	}
	if o.WebhookURL != "" {
		return baseURL("--webhook-url", o.WebhookURL)
	}
	if _, err := o.Service(); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("--webhook-service"), o.WebhookService, err.Error())}
	}
	return nil
}

// Service returns the Service that the API server calls. It is not used if
// WebhookURL is set.
func (o *Options) Service() (ServiceReference, error) {
	if o.WebhookService == "" {
		return ServiceReference{Namespace: o.Namespace, Name: "ostiary-webhook", Port: 443}, nil
	}
	namespace, rest, _ := strings.Cut(o.WebhookService, "/")
	name, portText, hasPort := strings.Cut(rest, ":")
	port := int64(443)
	if hasPort {
		var err error
		if port, err = strconv.ParseInt(portText, 10, 32); err != nil || port < 1 || port > 65535 {
			return ServiceReference{}, fmt.Errorf("write namespace/name:port with a port between 1 and 65535")
		}
	}
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1035Label(name)) > 0 {
		return ServiceReference{}, fmt.Errorf("write namespace/name:port with the names of a namespace and of a Service in it")
	}
	return ServiceReference{Namespace: namespace, Name: name, Port: int32(port)}, nil
}

// ServerNames returns the DNS names and IP addresses that the serving certificate
// must have.
func (o *Options) ServerNames() (dns []string, ips []net.IP, err error) {
	if o.WebhookURL == "" {
		service, err := o.Service()
		if err != nil {
			return nil, nil, err
		}
		return []string{service.Name + "." + service.Namespace + ".svc"}, nil, nil
	}
	u, err := url.Parse(o.WebhookURL)
	if err != nil {
		return nil, nil, fmt.Errorf("parsing --webhook-url: %w", err)
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil {
		return nil, []net.IP{ip}, nil
	}
	return []string{u.Hostname()}, nil, nil
}

func namespace(flag, value string) field.ErrorList {
	if problems := validation.IsDNS1123Label(value); len(problems) > 0 {
		return field.ErrorList{field.Invalid(field.NewPath(flag), value, "give the name of a namespace: "+strings.Join(problems, ", "))}
	}
	return nil
}

func address(flag, value string, canBeOff bool) field.ErrorList {
	if canBeOff && value == "0" {
		return nil
	}
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath(flag), value, "write host:port or :port")}
	}
	return nil
}

// LogsViolations reports whether violations are written to the standard output.
func (o *Options) LogsViolations() bool { return slices.Contains(o.ReportViolations, "log") }

// RecordsViolations reports whether Events of violations are recorded.
func (o *Options) RecordsViolations() bool { return slices.Contains(o.ReportViolations, "events") }

// ValuesReported returns whether reports of violations may hold values of the objects of a resource; nil if of none.
func (o *Options) ValuesReported() func(resource schema.GroupResource, subresource string) bool {
	hidden, err := sensitive.New(o.SensitiveResources...)
	if !o.ReportValues || err != nil { // Validate returns the error
		return nil
	}
	return func(resource schema.GroupResource, subresource string) bool {
		return !hidden.Contains(resource, subresource)
	}
}

// Sensitive returns the resources that hold credentials.
func (o *Options) Sensitive() sensitive.Resources {
	out, _ := sensitive.New(o.SensitiveResources...) // Validate returns the error
	return out
}

// choice lists values in a description.
func choice(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

func oneOf(flag, value string, known ...string) field.ErrorList {
	for _, k := range known {
		if value == k {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(field.NewPath(flag), value, known)}
}

func baseURL(flag, value string) field.ErrorList {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return field.ErrorList{field.Invalid(field.NewPath(flag), value, "write https://host:port, without path, query or user")}
	}
	return nil
}
