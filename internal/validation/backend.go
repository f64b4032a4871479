package validation

import (
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/egress"
)

const (
	messageEither   = "set either service or url"
	messageScheme   = "write url as https://host[:port]/path: the API server calls nothing else"
	messageHost     = "add a host to url"
	messageUser     = "remove user and password from url: the API server sends none, and readers of the policy would see them"
	messageQuery    = "remove the query from url: the API server rejects it"
	messageFragment = "remove the fragment from url: the API server rejects it"
	messagePort     = "choose a port between 1 and 65535 for url"
)

func backendSchema() []SchemaRule {
	rule := func(field string, kind field.ErrorType, message, rule string) SchemaRule {
		return SchemaRule{At: "spec.backend", Field: field, Type: kind, Message: message, Rule: rule}
	}
	const forbidden = field.ErrorTypeForbidden
	return []SchemaRule{
		rule("", field.ErrorTypeInvalid, messageEither, "has(self.service) != has(self.url)"),
		rule(".url", forbidden, messageScheme, "!has(self.url) || isURL(self.url) && url(self.url).getScheme() == 'https'"),
		rule(".url", forbidden, messageHost, "!has(self.url) || !isURL(self.url) || size(url(self.url).getHostname()) > 0"),
		rule(".url", forbidden, messageUser, "!has(self.url) || !self.url.contains('@')"),
		rule(".url", forbidden, messageQuery, "!has(self.url) || !self.url.contains('?')"),
		rule(".url", forbidden, messageFragment, "!has(self.url) || !self.url.contains('#')"),
		rule(".url", forbidden, messagePort, `!has(self.url) || !self.url.matches('^https?://[^/]*:0*`+
			`([1-9][0-9]{5,}|[7-9][0-9]{4}|6[6-9][0-9]{3}|65[6-9][0-9]{2}|655[4-9][0-9]|6553[6-9])?(/|$)')`),
	}
}

// checkBackendForm rejects values that the API server would reject in a webhook configuration.
func checkBackendForm(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	b := spec.Backend
	at = at.Child("backend")
	switch {
	case b == nil:
		return nil
	case (b.Service == nil) == (b.URL == ""):
		return field.ErrorList{field.Invalid(at, "", messageEither)}
	case b.URL == "":
		return nil
	}
	var errs field.ErrorList
	for _, message := range urlProblems(b.URL) {
		// The value and the parser's error can contain a password.
		errs = append(errs, field.Forbidden(at.Child("url"), message))
	}
	return errs
}

func urlProblems(raw string) []string {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" || u.Opaque != "" {
		return []string{messageScheme}
	}
	var out []string
	for _, problem := range []struct {
		message string
		found   bool
	}{
		{messageHost, u.Hostname() == ""},
		{messageUser, u.User != nil},
		{messageQuery, u.RawQuery != "" || u.ForceQuery},
		{messageFragment, u.Fragment != ""},
		{messagePort, !isPortValid(u)},
	} {
		if problem.found {
			out = append(out, problem.message)
		}
	}
	return out
}

// isPortValid reports whether a URL has no port, or one that can be called.
func isPortValid(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.Atoi(u.Port())
	return err == nil && port >= 1 && port <= 65535
}

// CheckBackend returns an error if the rule refuses the address of a backend; nil is no
// backend. It does not check the form of the URL.
func CheckBackend(b *v1alpha1.Backend, rule egress.Rule) field.ErrorList {
	at := field.NewPath("spec", "backend")
	switch {
	case b == nil:
		return nil
	case rule.DisableBackends:
		return field.ErrorList{field.Forbidden(at, "remove backend: Ostiary runs with --disable-backends")}
	case b.URL == "":
		return nil
	}
	u, err := url.Parse(b.URL)
	if err != nil {
		return nil
	}
	if err := rule.CheckHost(u.Hostname()); err != nil {
		return field.ErrorList{field.Forbidden(at.Child("url"), err.Error())}
	}
	return nil
}

// answererOf returns the name of the component that answers the calls.
func answererOf(spec *v1alpha1.WebhookPolicySpec) string {
	if spec.Backend != nil {
		return "the backend"
	}
	return "Ostiary"
}
