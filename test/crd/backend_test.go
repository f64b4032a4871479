package crd

import (
	"encoding/base64"
	"fmt"
	"strings"
)

const (
	aCertificate = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
	aService     = "{namespace: shop, name: checks}"
)

func base64Of(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// backendWith is the field backend, without CEL beside it, with the given
// fields, in YAML, instead of its own; null takes one out.
func backendWith(fields string) string {
	backend := map[string]string{
		"type": "Validating", "service": aService, "admissionReviewVersions": "[v1]", "sideEffects": "None",
		"caBundle": base64Of(aCertificate),
	}
	for line := range strings.Lines(fields) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		backend[name] = value
	}
	var b strings.Builder
	b.WriteString("validations: null\nbackend:")
	for name, value := range backend {
		fmt.Fprintf(&b, "\n  %s: %s", name, value)
	}
	return b.String()
}

// urlWith is a backend with a url instead of a service.
func urlWith(url string) string { return backendWith("service: null\nurl: " + url) }

func acceptedBackends() map[string]string {
	return map[string]string{
		"a backend with a service":            backendWith(""),
		"a backend with all of a service":     backendWith("service: {namespace: shop, name: checks, path: /v1/admit.json/, port: 8443}"),
		"a backend with a url":                urlWith("https://checks.example.com:8443/validate"),
		"a backend with an address":           urlWith("https://[2001:db8::1]/"),
		"a backend with public certificates":  backendWith("service: null\nurl: https://checks.example.com\ncaBundle: null"),
		"a backend with its CA from a Secret": backendWith("caBundle: null\ncaFrom: {secret: {namespace: shop, name: ca, key: ca.crt}}"),
		"a backend with its CA " +
			"from ConfigMap": backendWith("caBundle: null\ncaFrom: {configMap: {namespace: shop, name: ca.v1, key: service-ca_bundle.crt}}"),
		"a backend with a certificate":      backendWith("caBundle: null\ncertificate: {secretName: checks-tls}"),
		"a backend for v1beta1":             backendWith("admissionReviewVersions: [v1beta1]\nsideEffects: NoneOnDryRun"),
		"a mutating backend in order":       backendWith("type: Mutating") + "\norder: 5\nreinvocationPolicy: IfNeeded",
		"a mutating backend for DELETE":     backendWith("type: Mutating") + "\n" + ruleWith("operations", "[DELETE]"),
		"a backend with conditions":         backendWith("") + "\nmatchConditions: [{name: a, expression: request.name != 'a'}]",
		"a backend with the largest bundle": backendWith("caBundle: " + base64Of(aCertificate+strings.Repeat("\n", 64<<10-len(aCertificate)))),
	}
}

func refusedBackends() map[string]refusedCase {
	out := refusedBackendFields()
	for name, tc := range map[string]refusedCase{
		"a backend beside validations": {strings.Replace(backendWith(""), "null", "[{expression: 'true'}]", 1),
			[]string{"spec.validations: Forbidden: remove validations, or backend: a policy has one or the other"}},
		"a backend beside mutations": {backendWith("") + "\n" + mutationWith(applyMutation),
			[]string{"spec.mutations: Forbidden: remove mutations, or backend: a policy has one or the other"}},
		"a backend beside audit annotations": {backendWith("") + "\nauditAnnotations: [{key: k, valueExpression: 'null'}]",
			[]string{"spec.auditAnnotations: Forbidden: remove auditAnnotations, or backend: a policy has one or the other"}},
		"a backend with bindings": {backendWith("") + "\nbindings: [{name: b}]",
			[]string{"spec.bindings: Forbidden: remove bindings: only the backend decides; select its requests in matchConstraints"}},
		"a backend with exceptions": {backendWith("") + "\nexceptions: {}",
			[]string{"spec.exceptions: Forbidden: remove exceptions: only the backend decides; select its requests in matchConstraints"}},
		"a backend with a paramKind": {backendWith("") + "\nparamKind: {apiVersion: v1, kind: ConfigMap}",
			[]string{"spec.paramKind: Forbidden: remove paramKind: a backend gets no params"}},
		"a backend with variables": {backendWith("") + "\nvariables: [{name: a, expression: 'true'}]",
			[]string{"spec.variables: Forbidden: remove variables: the API server evaluates the matchConditions of a backend, without variables"}},
		"a backend with excludeResourceRules": {backendWith("") + "\n" + strings.Replace(ruleWith("scope", "'*'"),
			"{resourceRules:", "{excludeResourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: "+
				"[CREATE]}], resourceRules:", 1),
			[]string{
				"spec.matchConstraints.excludeResourceRules: Forbidden: remove excludeResourceRules: webhooks have none; exclude " +
					"requests with a matchCondition",
			}},
		"a backend with resourceNames": {backendWith("") + "\n" + ruleWith("resourceNames", "[a]"),
			[]string{
				"spec.matchConstraints.resourceRules: Forbidden: remove resourceNames: webhooks have none; use a matchCondition on request.name",
			}},
		"a validating backend with an order": {backendWith("") + "\norder: 5",
			[]string{"spec.order: Forbidden: remove order: only mutations have an order"}},
		"a validating backend with a reinvocationPolicy": {backendWith("") + "\nreinvocationPolicy: IfNeeded",
			[]string{"spec.reinvocationPolicy: Forbidden: remove reinvocationPolicy: only mutations are invoked again"}},
	} {
		out[name] = tc
	}
	return out
}

func refusedBackendFields() map[string]refusedCase {
	const (
		at     = "spec.backend"
		scheme = at + ".url: Forbidden: write url as https://host[:port]/path: the API server calls nothing else"
		user   = at + ".url: Forbidden: remove user and password from url: the API server sends none, and readers of the policy would see them"
		query  = at + ".url: Forbidden: remove the query from url: the API server rejects it"
		port   = at + ".url: Forbidden: choose a port between 1 and 65535 for url"
		one    = at + ": Invalid value: set only one of caBundle, caFrom and certificate"
	)
	return map[string]refusedCase{
		"service and url": {
			fields: backendWith("url: https://a.example.com"),
			want:   []string{at + ": Invalid value: set either service or url"},
		},
		"neither service nor url": {
			fields: backendWith("service: null"),
			want:   []string{at + ": Invalid value: set either service or url"},
		},
		"a url with http":    {fields: urlWith("http://a.example.com"), want: []string{scheme}},
		"a url that is none": {fields: urlWith("a.example.com"), want: []string{scheme}},
		"a url without a host": {
			fields: urlWith("https:///a"),
			want:   []string{at + ".url: Forbidden: add a host to url"},
		},
		"a url with a user":         {fields: urlWith("https://me:secret@a.example.com"), want: []string{user}},
		"a url with a query":        {fields: urlWith("https://a.example.com/?a=b"), want: []string{query}},
		"a url with an empty query": {fields: urlWith("https://a.example.com/?"), want: []string{query}},
		"a url with a fragment": {
			fields: urlWith(`"https://a.example.com/#a"`),
			want:   []string{at + ".url: Forbidden: remove the fragment from url: the API server rejects it"},
		},
		"a url with port 0":     {fields: urlWith("https://a.example.com:0"), want: []string{port}},
		"a url with port 65536": {fields: urlWith("https://a.example.com:65536"), want: []string{port}},
		"a url too long": {
			fields: urlWith("https://a.example.com/" + long(2048)),
			want:   []string{at + ".url: Too long: may not be more than 2048 bytes"},
		},
		"a service with port 0": {
			fields: backendWith("service: {namespace: a, name: b, port: 0}"),
			want: []string{
				at + ".service.port: Invalid value: 0: spec.backend.service.port in body should be greater than or equal to 1",
			},
		},
		"a service with port 65536": {
			fields: backendWith("service: {namespace: a, name: b, port: 65536}"),
			want: []string{
				at + ".service.port: Invalid value: 65536: spec.backend.service.port in body should be less than or equal to 65535",
			},
		},
		"a service without a namespace": {
			fields: backendWith("service: {name: b}"),
			want:   []string{at + ".service.namespace: Required value"},
		},
		"a service in capitals": {
			fields: backendWith("service: {namespace: a, name: B}"),
			want: []string{
				at + `.service.name: Invalid value: "B": write the name of a Service: lower-case letters, digits and '-', beginning with a letter`,
			},
		},
		"a path without a slash": {
			fields: backendWith("service: {namespace: a, name: b, path: c}"),
			want: []string{
				at + `.service.path: Invalid value: "c": begin path with '/'`,
				at + `.service.path: Invalid value: "c": write each segment of path with lower-case letters, digits, '-' and '.': ` +
					`the API server rejects others`,
			},
		},
		"a path with an empty step": {
			fields: backendWith("service: {namespace: a, name: b, path: /c//d}"),
			want: []string{
				at + `.service.path: Invalid value: "/c//d": write each segment of path with lower-case letters, digits, '-' and ` +
					`'.': the API server rejects others`,
			},
		},
		"a backend without a type": {
			fields: backendWith("type: null"),
			want:   []string{at + ".type: Required value"},
		},
		"a backend of an unknown type": {
			fields: backendWith("type: Both"),
			want:   []string{at + `.type: Unsupported value: "Both": supported values: "Validating", "Mutating"`},
		},
		"a backend with side effects": {
			fields: backendWith("sideEffects: Some"),
			want:   []string{at + `.sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`},
		},
		"a backend without versions": {
			fields: backendWith("admissionReviewVersions: []"),
			want: []string{
				at + ".admissionReviewVersions: Invalid value: 0: spec.backend.admissionReviewVersions in body should have at least 1 items",
			},
		},
		"a backend for v2": {
			fields: backendWith("admissionReviewVersions: [v2]"),
			want:   []string{at + `.admissionReviewVersions[0]: Unsupported value: "v2": supported values: "v1", "v1beta1"`},
		},
		"a version twice": {
			fields: backendWith("admissionReviewVersions: [v1, v1]"),
			want:   []string{at + ".admissionReviewVersions: Duplicate value"},
		},
		"two sources of the CA": {fields: backendWith("certificate: {secretName: a}"), want: []string{one}},
		"three sources of the CA": {
			fields: backendWith("certificate: {secretName: a}\ncaFrom: {secret: {namespace: a, name: b, key: c}}"),
			want:   []string{one},
		},
		"a service without a CA": {
			fields: backendWith("caBundle: null"),
			want: []string{
				at + ": Required value: add caBundle, caFrom or certificate: the API server needs the CA of the service's certificate",
			},
		},
		"a certificate for a url": {
			fields: backendWith("service: null\nurl: https://a.example.com\ncaBundle: null\ncertificate: {secretName: a}"),
			want: []string{
				at + ".certificate: Forbidden: remove certificate, or set service instead of url: Ostiary issues certificates for Services only",
			},
		},
		"a certificate without a name": {
			fields: backendWith("caBundle: null\ncertificate: {}"),
			want:   []string{at + ".certificate.secretName: Required value"},
		},
		"a CA from both": {
			fields: backendWith("caBundle: null\ncaFrom: {secret: {namespace: a, name: b, key: c}, configMap: {namespace: a, name: b, key: c}}"),
			want:   []string{at + ".caFrom: Invalid value: set either secret or configMap"},
		},
		"a CA from neither": {
			fields: backendWith("caBundle: null\ncaFrom: {}"),
			want:   []string{at + ".caFrom: Invalid value: set either secret or configMap"},
		},
		"a CA from a Secret without a key": {
			fields: backendWith("caBundle: null\ncaFrom: {secret: {namespace: a, name: b}}"),
			want:   []string{at + ".caFrom.secret.key: Required value"},
		},
		"a CA from a key with a slash": {
			fields: backendWith("caBundle: null\ncaFrom: {secret: {namespace: a, name: b, key: c/d}}"),
			want: []string{
				at + `.caFrom.secret.key: Invalid value: "c/d": write a key with letters, digits, '-', '_' and '.'`,
			},
		},
		"an empty bundle": {
			fields: backendWith(`caBundle: ""`),
			want:   []string{at + `.caBundle: Invalid value: "": spec.backend.caBundle in body must be of type byte: ""`},
		},
		"a bundle that is not PEM": {
			fields: backendWith("caBundle: " + base64Of("certificate")),
			want:   []string{at + ".caBundle: Forbidden: add a certificate in PEM: caBundle has none"},
		},
		"a bundle with a private key": {
			fields: backendWith("caBundle: " +
				base64Of(aCertificate+"-----BEGIN PRIVATE KEY-----\nMA==\n-----END PRIVATE KEY-----\n")),
			want: []string{at + ".caBundle: Forbidden: remove the private key: a CA bundle holds only certificates"},
		},
		"a bundle with a private key alone": {
			fields: backendWith("caBundle: " + base64Of("-----BEGIN EC PRIVATE KEY-----\nMA==\n-----END EC PRIVATE KEY-----\n")),
			want: []string{
				at + ".caBundle: Forbidden: remove the private key: a CA bundle holds only certificates",
				at + ".caBundle: Forbidden: add a certificate in PEM: caBundle has none",
			},
		},
		"a bundle of more than 64 KiB": {
			fields: backendWith("caBundle: " + base64Of(strings.Repeat("\n", 64<<10+3))),
			want:   []string{at + ".caBundle: Too long: may not be more than 87384 bytes"},
		},
		"a bundle of 2 MiB": {
			fields: backendWith("caBundle: " + base64Of(strings.Repeat("\n", 2<<20))),
			want:   []string{at + ".caBundle: Too long: may not be more than 87384 bytes"},
		},
	}
}
