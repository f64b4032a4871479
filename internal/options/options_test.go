package options

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o := &Options{}
	flags := pflag.NewFlagSet("ostiary", pflag.ContinueOnError)
	o.Bind(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatalf("Parse(%q) = %v", args, err)
	}
	return o
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		args    []string
		wantErr string
	}{
		"defaults":                  {},
		"a URL":                     {args: []string{"--webhook-url=https://127.0.0.1:9443"}},
		"a Service":                 {args: []string{"--webhook-service=ns/svc:8443"}},
		"a Service without a port":  {args: []string{"--webhook-service=ns/svc"}},
		"violations in both places": {args: []string{"--report-violations=log,events"}},
		"violations elsewhere": {
			args:    []string{"--report-violations=stdout"},
			wantErr: `--report-violations: Unsupported value: "stdout": supported values: "log", "events"`,
		},
		"metrics off": {args: []string{"--metrics-address=0"}},
		"http": {
			args:    []string{"--webhook-url=http://127.0.0.1:9443"},
			wantErr: `--webhook-url: Invalid value: "http://127.0.0.1:9443": write https://host:port, without path, query or user`,
		},
		"URL with a query": {args: []string{"--webhook-url=https://h/?a=b"}, wantErr: "write https://host:port"},
		"URL with a user":  {args: []string{"--webhook-url=https://u:p@h"}, wantErr: "write https://host:port"},
		"both URL and Service": {
			args:    []string{"--webhook-url=https://h", "--webhook-service=a/b:1"},
			wantErr: "--webhook-url: Forbidden: give either --webhook-url or --webhook-service, not both",
		},
		"Service with port 0":         {args: []string{"--webhook-service=a/b:0"}, wantErr: "with a port between 1 and 65535"},
		"Service without a namespace": {args: []string{"--webhook-service=b:443"}, wantErr: "write namespace/name:port"},
		"address without a port": {
			args:    []string{"--webhook-address=localhost"},
			wantErr: `--webhook-address: Invalid value: "localhost": write host:port or :port`,
		},
		"webhook cannot be off": {args: []string{"--webhook-address=0"}, wantErr: "--webhook-address"},
		"no drain": {
			args:    []string{"--drain-min=0s"},
			wantErr: `--drain-min: Invalid value: "0s": give a duration above 0s and up to 1m50s`,
		},
		"drain-max below drain-min": {
			args:    []string{"--drain-max=1s"},
			wantErr: `--drain-max: Invalid value: "1s": give at least --drain-min`,
		},
		"limits of load": {
			args: []string{"--max-evaluations=8", "--max-in-flight=100", "--max-connections=50", "--max-body-memory=28Mi"},
		},
		"negative limit": {
			args:    []string{"--max-connections=-1"},
			wantErr: "--max-connections: Invalid value: -1: give a number from 1 to 100000, or 0 for the default",
		},
		"limit too high": {
			args:    []string{"--max-evaluations=100001"},
			wantErr: "--max-evaluations: Invalid value: 100001: give a number from 1 to 100000, or 0 for the default",
		},
		"fewer than are evaluated": {
			args:    []string{"--max-evaluations=8", "--max-in-flight=7"},
			wantErr: "--max-in-flight: Invalid value: 7: give at least --max-evaluations",
		},
		"less memory than one body": {
			args:    []string{"--max-body-memory=1Mi"},
			wantErr: `--max-body-memory: Invalid value: "1Mi": give from 28Mi, the size of the largest body, to 4Gi, or 0 for the default`,
		},
		"limits of lookups": {args: []string{"--lookup-entries=1000", "--lookup-memory=16Mi", "--lookup-max-age=1m"}},
		"few entries of lookups": {
			args:    []string{"--lookup-entries=999"},
			wantErr: "--lookup-entries: Invalid value: 999: give a number from 1000 to 10000000",
		},
		"little memory for lookups": {
			args:    []string{"--lookup-memory=1Mi"},
			wantErr: `--lookup-memory: Invalid value: "1Mi": give from 16Mi to 64Gi, or 0 for the default`,
		},
		"lookups that are too young": {
			args:    []string{"--lookup-max-age=30s"},
			wantErr: `--lookup-max-age: Invalid value: "30s": give from 1m to 1h`,
		},
		"short certificates": {args: []string{"--ca-lifetime=10h", "--certificate-lifetime=1h", "--trust-overlap=1m"}},
		"leaf longer than the CA": {
			args: []string{"--ca-lifetime=720h"},
			wantErr: `--certificate-lifetime: Invalid value: "2160h0m0s": must be at most 360h0m0s, the remaining lifetime of ` +
				`a CA when it is replaced`,
		},
		"CA renewed after its end": {
			args:    []string{"--ca-renew-after=30000h"},
			wantErr: `--ca-lifetime: Invalid value: "26280h0m0s": must exceed the renewal age 30000h0m0s by at least 5s`,
		},
		"leaf renewed at once": {
			args:    []string{"--certificate-renew-after=1s"},
			wantErr: `--certificate-renew-after: Invalid value: "1s": must be at least 5s`,
		},
		"CA renewed at once": {
			args:    []string{"--ca-renew-after=1s"},
			wantErr: `--ca-renew-after: Invalid value: "1s": must be at least 5s`,
		},
		"negative overlap": {
			args:    []string{"--trust-overlap=-1m"},
			wantErr: `--trust-overlap: Invalid value: "-1m0s": must be at least 5s`,
		},
		"backdate too long": {
			args:    []string{"--certificate-backdate=48h"},
			wantErr: `--certificate-backdate: Invalid value: "48h0m0s": must be between 0 and 24h0m0s`,
		},
		"cert-manager":              {args: []string{"--cert-manager-issuer=ClusterIssuer/internal"}},
		"cert-manager, long leaves": {args: []string{"--cert-manager-issuer=internal", "--certificate-lifetime=26280h"}},
		"an external issuer": {
			args: []string{"--cert-manager-issuer=AWSPCAClusterIssuer.awspca.cert-manager.io/internal"},
		},
		"an issuer without a kind": {
			args:    []string{"--cert-manager-issuer=/internal"},
			wantErr: `--cert-manager-issuer: Invalid value: "/internal": write Issuer/name, ClusterIssuer/name, or Kind.group/name`,
		},
		"a kind in lower case": {
			args:    []string{"--cert-manager-issuer=issuer/internal"},
			wantErr: `--cert-manager-issuer: Invalid value: "issuer/internal": write Issuer/name`,
		},
		"too short for cert-manager": {
			args:    []string{"--cert-manager-issuer=internal", "--certificate-lifetime=30m", "--trust-overlap=1m"},
			wantErr: `--certificate-lifetime: Invalid value: "30m0s": give at least 1h0m0s: cert-manager issues nothing shorter`,
		},
		"renewed too late": {
			args: []string{
				"--cert-manager-issuer=internal", "--certificate-lifetime=2h", "--certificate-renew-after=116m",
				"--trust-overlap=1m",
			},
			wantErr: `--certificate-renew-after: Invalid value: "1h56m0s": give at least 5m0s less than --certificate-lifetime`,
		},
		"renewed within the overlap": {
			args:    []string{"--cert-manager-issuer=internal", "--certificate-lifetime=1h", "--certificate-renew-after=50m"},
			wantErr: `--certificate-renew-after: Invalid value: "50m0s": leave more than --trust-overlap, 15m0s, of --certificate-lifetime`,
		},
		"an external Secret": {args: []string{"--certificate-secret=tls"}},
		"Ostiary's own Secret": {
			args:    []string{"--certificate-secret=ostiary-serving"},
			wantErr: `--certificate-secret: Invalid value: "ostiary-serving": give a Secret of its own: Ostiary writes this one`,
		},
		"no name of a Secret": {
			args:    []string{"--certificate-secret=a/b"},
			wantErr: `--certificate-secret: Invalid value: "a/b": give the name of a Secret`,
		},
		"two issuers": {
			args:    []string{"--certificate-secret=a", "--cert-manager-issuer=b"},
			wantErr: "--certificate-secret: Forbidden: give either --cert-manager-issuer or --certificate-secret, not both",
		},
		"a certificate as credential": {
			args:    []string{"--certificate-secret=a", "--caller-token-secret=a"},
			wantErr: `--caller-token-secret: Invalid value: "a": give another Secret than --certificate-secret`,
		},
		"unknown log level": {
			args:    []string{"--log-level=loud"},
			wantErr: `--log-level: Unsupported value: "loud": supported values: "debug", "info", "warn", "error"`,
		},
		"unknown log format": {args: []string{"--log-format=xml"}, wantErr: `--log-format: Unsupported value: "xml"`},
		"bad namespace": {
			args:    []string{"--namespace=Not_One"},
			wantErr: `--namespace: Invalid value: "Not_One": give the name of a namespace`,
		},
		"all credentials": {
			args: []string{
				"--client-ca=/ca.crt", "--client-names=a,spiffe://b/c", "--caller-token-secret=token",
				"--caller-basic-secret=basic",
			},
		},
		"CA without names": {
			args:    []string{"--client-ca=/ca.crt"},
			wantErr: "--client-names: Required value: give the names in the client certificates of API servers",
		},
		"names without a CA": {
			args:    []string{"--client-names=a"},
			wantErr: "--client-names: Forbidden: give --client-ca too",
		},
		"an empty name": {
			args:    []string{"--client-ca=/ca.crt", "--client-names=a,"},
			wantErr: `--client-names: Invalid value: "": write out each name`,
		},
		"a wildcard": {
			args:    []string{"--client-ca=/ca.crt", "--client-names=*.a"},
			wantErr: `--client-names: Invalid value: "*.a": write out each name`,
		},
		"a path for a Secret": {
			args:    []string{"--caller-token-secret=/token"},
			wantErr: `--caller-token-secret: Invalid value: "/token": give the name of a Secret`,
		},
		"the CA's Secret": {
			args:    []string{"--caller-basic-secret=ostiary-ca"},
			wantErr: `--caller-basic-secret: Invalid value: "ostiary-ca": give a Secret of its own`,
		},
		"one Secret for both": {
			args:    []string{"--caller-token-secret=a", "--caller-basic-secret=a"},
			wantErr: "--caller-basic-secret: Invalid value: \"a\": give another Secret than --caller-token-secret",
		},
		"addresses of backends": {args: []string{"--permitted-backend-addresses=127.0.0.0/8,::1"}},
		"a name for an address": {
			args:    []string{"--permitted-backend-addresses=localhost"},
			wantErr: `--permitted-backend-addresses: Invalid value: "localhost": give an IP address or a CIDR, such as 127.0.0.1 or 127.0.0.0/8`,
		},
		"no account for params": {args: []string{"--params-account="}},
		"an account elsewhere": {
			args:    []string{"--params-account=a/b"},
			wantErr: `--params-account: Invalid value: "a/b": give the name of a ServiceAccount`,
		},
		"sensitive resources": {args: []string{"--sensitive-resources=configmaps,*.vault.example.com,pods/exec"}},
		"no sensitive resource": {
			args:    []string{"--sensitive-resources=pods,Secrets"},
			wantErr: `--sensitive-resources: Invalid value: "pods,Secrets": "Secrets" is no resource: write resource, resource.group or *.group`,
		},
		"bad exempt namespace": {
			args:    []string{"--exempt-namespaces=a,*"},
			wantErr: `--exempt-namespaces: Invalid value: "*"`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := parse(t, tc.args...).Validate()
			switch {
			case tc.wantErr == "" && err != nil:
				t.Errorf("Validate() = %v, want no error", err)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Errorf("Validate() = %v, want an error that contains %q", err, tc.wantErr)
			}
		})
	}
}

func TestValuesReported(t *testing.T) {
	tests := map[string]struct {
		args []string
		want map[string]bool // by resource; nil permits none
	}{
		"by default":  {},
		"only a list": {args: []string{"--sensitive-resources=configmaps"}},
		"permitted": {
			args: []string{"--report-values"},
			want: map[string]bool{"configmaps": true, "pods": true, "secrets": false},
		},
		"permitted except some": {
			args: []string{"--report-values", "--sensitive-resources=configmaps"},
			want: map[string]bool{"configmaps": false, "pods": true, "secrets": false},
		},
		"an invalid list": {args: []string{"--report-values", "--sensitive-resources=A"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := parse(t, tc.args...).ValuesReported()
			if (got == nil) != (tc.want == nil) {
				t.Fatalf("permits values: %t, want %t", got != nil, tc.want != nil)
			}
			for resource, want := range tc.want {
				if got(schema.GroupResource{Resource: resource}, "") != want {
					t.Errorf("%s: got %t, want %t", resource, !want, want)
				}
			}
		})
	}
}

func TestServerNames(t *testing.T) {
	tests := map[string]struct {
		args    []string
		wantDNS []string
		wantIPs []net.IP
	}{
		"default Service": {wantDNS: []string{"ostiary-webhook.ostiary-system.svc"}},
		"URL by name":     {args: []string{"--webhook-url=https://example.test:9443"}, wantDNS: []string{"example.test"}},
		"URL by address":  {args: []string{"--webhook-url=https://127.0.0.1:9443"}, wantIPs: []net.IP{net.ParseIP("127.0.0.1")}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dns, ips, err := parse(t, tc.args...).ServerNames()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantDNS, dns); diff != "" {
				t.Errorf("DNS names (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantIPs, ips); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}
