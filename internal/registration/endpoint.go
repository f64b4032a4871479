package registration

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Endpoint is the address at which API servers call Ostiary: a Service or a URL.
// Exactly one of them is set.
type Endpoint struct {
	// Service is the Service of the replicas.
	Service *Service
	// URL is https://host[:port], without a path.
	URL string
}

// Service names a port of a Service.
type Service struct {
	// Namespace is the Service's namespace.
	Namespace string
	// Name is the Service's name.
	Name string
	// Port is a port of the Service.
	Port int32
}

// Validate returns all errors of the endpoint in one.
func (e Endpoint) Validate() error {
	switch {
	case e.Service != nil && e.URL != "":
		return errors.New("endpoint: set either service or url, not both")
	case e.Service != nil:
		return e.Service.validate()
	case e.URL != "":
		return validateURL(e.URL)
	default:
		return errors.New("endpoint: set service or url")
	}
}

func (s Service) validate() error {
	var errs []error
	if msgs := validation.IsDNS1123Label(s.Namespace); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("endpoint: service.namespace %q: %s", s.Namespace, strings.Join(msgs, "; ")))
	}
	if msgs := validation.IsDNS1123Label(s.Name); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("endpoint: service.name %q: %s", s.Name, strings.Join(msgs, "; ")))
	}
	if msgs := validation.IsValidPortNum(int(s.Port)); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("endpoint: service.port %d: %s", s.Port, strings.Join(msgs, "; ")))
	}
	return errors.Join(errs...)
}

func validateURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's error can contain a password.
		return errors.New("endpoint: url cannot be parsed: write it as https://host[:port]")
	}
	var errs []error
	if u.Scheme != "https" {
		errs = append(errs, fmt.Errorf("endpoint: url has scheme %q: write it as https://host[:port]", u.Scheme))
	}
	if u.Hostname() == "" {
		errs = append(errs, errors.New("endpoint: url has no host: write it as https://host[:port]"))
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || len(validation.IsValidPortNum(n)) > 0 {
			errs = append(errs, fmt.Errorf("endpoint: url has port %q: choose one between 1 and 65535", port))
		}
	}
	if u.User != nil {
		errs = append(errs, errors.New("endpoint: remove user and password from url: the API server rejects them"))
	}
	if u.Opaque != "" || (u.Path != "" && u.Path != "/") {
		errs = append(errs, errors.New("endpoint: remove the path from url: each call group has its own"))
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		errs = append(errs, errors.New("endpoint: remove query and fragment from url: the API server rejects them"))
	}
	return errors.Join(errs...)
}

func (e Endpoint) clientConfig(path string, caBundle []byte) admissionregistrationv1.WebhookClientConfig {
	config := admissionregistrationv1.WebhookClientConfig{CABundle: caBundle}
	if e.Service == nil {
		config.URL = new(strings.TrimRight(e.URL, "/") + path)
		return config
	}
	config.Service = &admissionregistrationv1.ServiceReference{
		Namespace: e.Service.Namespace, Name: e.Service.Name, Path: new(path), Port: new(e.Service.Port),
	}
	return config
}
