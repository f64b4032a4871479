package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ostiary/ostiary/internal/options"
)

// The schema of the chart accepts a value of a flag if the manager does.
func TestSchemaAgreesWithManager(t *testing.T) {
	candidates := []string{
		"", "0", "-1", "1", "a", " a", "A", "a_b", "verbose", "debug", "json", "xml", "28Mi", "28Mib", "x:1", ":1",
		"x:65535", "x:65536", "a:b:1", "[::1]:1",
		"a/b", "a/b:1", "a/b:0", "A/b", "Issuer/a", "AWSPCAClusterIssuer.awspca.cert-manager.io/a", "https://a",
		"https://[::1]:1/", "http://a", "https://a/b",
		"127.0.0.1", "127.0.0.0/8", "::1/128", "localhost", "*.a", "spiffe://b/c", strings.Repeat("a", 64),
	}
	// The manager alone limits sizes, and parses IPv6 addresses.
	looser := map[string][]string{
		"max-body-memory": {"1"}, "max-cache-memory": {"1"}, "lookup-memory": {"1"},
		"permitted-backend-addresses": {"a:b:1"},
	}
	values := flagValues(managerFlags())
	checked := 0
	for _, f := range managerFlags() {
		value := values.object(camel(f.Name))
		if value.text("type") == "array" {
			value = value.object("items")
		}
		if value.text("type") != "string" || f.Value.Type() == "duration" {
			continue
		}
		checked++
		for _, c := range candidates {
			inSchema, inManager := accepts(t, value, c), managerAccepts(f.Name, c)
			if inSchema != inManager && !slices.Contains(looser[f.Name], c) {
				t.Errorf("--%s=%q: the schema accepts it: %t, the manager: %t", f.Name, c, inSchema, inManager)
			}
		}
	}
	if checked < 15 {
		t.Errorf("%d flags were compared", checked)
	}
}

func accepts(t *testing.T, schema *object, value string) bool {
	t.Helper()
	if enum, ok := schema.fields["enum"].([]any); ok && !slices.Contains(enum, any(value)) {
		return false
	}
	found, err := regexp.MatchString(schema.text("pattern"), value)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// managerAccepts reports whether the manager accepts a value for a flag, apart from its relation to other flags.
func managerAccepts(flag, value string) bool {
	o := &options.Options{}
	set := pflag.NewFlagSet("ostiary", pflag.ContinueOnError)
	o.Bind(set)
	args := []string{"--" + flag + "=" + value}
	if f := set.Lookup(flag); strings.HasSuffix(f.Value.Type(), "Slice") && value == "" {
		args[0] += "," // an empty element, not an empty list
	}
	if set.Parse(args) != nil {
		return false
	}
	err := o.Validate()
	return err == nil || !strings.Contains(err.Error(), "--"+flag+": Invalid value") && !strings.Contains(err.Error(),
		"--"+flag+": Unsupported value")
}
