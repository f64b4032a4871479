package registration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEndpointValidate(t *testing.T) {
	service := func(namespace, name string, port int32) Endpoint {
		return Endpoint{Service: &Service{Namespace: namespace, Name: name, Port: port}}
	}
	tests := map[string]struct {
		endpoint Endpoint
		want     string
	}{
		"service":         {endpoint: service("ns", "name", 443)},
		"url":             {endpoint: Endpoint{URL: "https://example.com"}},
		"url with port":   {endpoint: Endpoint{URL: "https://127.0.0.1:9443/"}},
		"url, version 6":  {endpoint: Endpoint{URL: "https://[::1]:9443"}},
		"nothing":         {want: "endpoint: set service or url"},
		"service and url": {endpoint: Endpoint{Service: &Service{}, URL: "x"}, want: "endpoint: set either service or url, not both"},
		"bad service": {
			endpoint: service("", "A", 0),
			want: "endpoint: service.namespace \"\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')\n" +
				"endpoint: service.name \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')\n" +
				"endpoint: service.port 0: must be between 1 and 65535, inclusive",
		},
		"not https":    {endpoint: Endpoint{URL: "http://a"}, want: `endpoint: url has scheme "http": write it as https://host[:port]`},
		"no host":      {endpoint: Endpoint{URL: "https://:9443"}, want: "endpoint: url has no host: write it as https://host[:port]"},
		"a port":       {endpoint: Endpoint{URL: "https://a:70000"}, want: `endpoint: url has port "70000": choose one between 1 and 65535`},
		"a path":       {endpoint: Endpoint{URL: "https://a/b"}, want: "endpoint: remove the path from url: each call group has its own"},
		"a user":       {endpoint: Endpoint{URL: "https://u:secret@a"}, want: "endpoint: remove user and password from url: the API server rejects them"},
		"a query":      {endpoint: Endpoint{URL: "https://a?b"}, want: "endpoint: remove query and fragment from url: the API server rejects them"},
		"not parsable": {endpoint: Endpoint{URL: "https://u:secret@a:b"}, want: "endpoint: url cannot be parsed: write it as https://host[:port]"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := tc.endpoint.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Validate (-want +got):\n%s", diff)
			}
		})
	}
}
