package violationtext

import "strings"

// The text of an error of an expression, as Kubernetes writes it. Several errors of match conditions are in brackets.
const (
	errorPrefix    = "expression '"
	errorSeparator = "' resulted in error: "
)

// Texts with which errors of Ostiary begin.
const (
	// Panicked is the text of the error of an evaluation that panicked.
	Panicked = "internal error: the evaluation panicked"
	// PolicyErrorPrefix and BindingErrorPrefix begin errors of the configuration, in the words of the API server.
	PolicyErrorPrefix  = "failed to configure policy: "
	BindingErrorPrefix = "failed to configure binding: "
)

// isErrorOf reports whether a text is the error of an expression, or begins with it.
func isErrorOf(expression, text string) bool {
	return strings.HasPrefix(strings.TrimPrefix(text, "["), errorPrefix+expression+errorSeparator)
}

// OtherError is the name of the kind of errors that are of no other kind, and bindingError that of errors of the
// configuration.
const (
	OtherError   = "the evaluation failed"
	bindingError = "the params or the selectors of a binding cannot be used: see the conditions of the policy"
)

// errorKind is a kind of errors, and how the texts of such errors begin. The rest of a text can be a value of an
// object.
type errorKind struct {
	name       string
	beginnings []string
}

// errorKinds returns the kinds of errors of expressions, of patches and of Ostiary.
func errorKinds() []errorKind {
	return []errorKind{
		{"no such key", []string{"no such key", "key missing from map", "could not find key"}},
		{"no such field", []string{"no such attribute", "no such field", "cannot get field", "undefined field"}},
		{"index out of bounds", []string{"index ", "optional index", "invalid substring range", "cannot slice("}},
		{"type mismatch", []string{"no such overload", "no matching overload", "unsupported", "type mismatch", "unexpected type", "unexpected data", "list elements",
			"unknown type", "invalid type", "invalid qualifier", "expected all elements"}},
		{"conversion failed", []string{"type conversion", "error during formatting", "strconv.", "parse error", "parsing ", "error while ", "could not convert", "couldn't convert", "cannot convert",
			"unable to convert", "fail to convert", "failed to convert", "invalid duration", "Invalid duration", "range error", "disallowed conversion", "invalid UTF-8", "quantities must match",
			"illegal base64", "Invalid character", "Version string empty", "No Major", "unrecognized formatting", "no formatting function", "join:",
			"IPv4-mapped", "IP address", "IP Address", "network address", "URL parse", "cannot unmarshal"}},
		{"invalid regular expression", []string{
			"error parsing regexp", "Illegal regex", "invalid replacement string", "replacement string references",
		}},
		{"division by zero", []string{"division by zero", "divide by zero", "modulus by zero"}},
		{"overflow", []string{
			"integer overflow", "unsigned integer overflow", "duration overflow", "timestamp overflow", "does not fit into",
			"math.bitShift",
		}},
		{"duplicate key", []string{"insert failed"}},
		{"a value is too large", []string{
			"the result would have", "a quantity has", "the exponent of", "a range has", "lists of ", "texts of ",
			"a text of ", "lists.range",
		}},
		{"cost limit exceeded", []string{
			"operation cancelled", "validation failed due to running out of cost budget", "runtime cost",
		}},
		{"time limit exceeded", []string{
			"context deadline exceeded", "context canceled", "operation interrupted", "not evaluated: ",
		}},
		{"permissions are not known", []string{"asking for authorization"}},
		{Panicked, []string{Panicked}},
		{"internal error", []string{"internal error"}},
		{"the policy does not compile", []string{"compilation error", "spec."}},
		{"no params found", []string{"no params found"}},
		{"the namespace cannot be read", []string{"getting namespace"}},
		{"the kind is not known yet", []string{"the schema of", "schemas are not available", "the resource "}},
		{"the object contradicts the request", []string{"decoding request."}},
		{"the object cannot be read", []string{"unreadable object"}},
		{"the patch does not apply", []string{
			"JSON Patch", "failed to create JSON patch", "error applying patch", "JSONPath",
		}},
		{"the result is invalid", []string{
			"the result is no valid", "the result has no kind", "metadata.name: the mutation", "metadata.namespace: the mutation",
			"cannot be changed in a pod template",
		}},
	}
}

// errorKindOf returns the kind of an error: that of the beginning that occurs first after the expression of the
// error.
func errorKindOf(text string) string {
	text, _ = strings.CutPrefix(text, "[")
	if strings.HasPrefix(text, errorPrefix) {
		if _, after, ok := strings.Cut(text, errorSeparator); ok {
			text = after
		}
	}
	found, first := OtherError, len(text)
	for _, prefix := range []string{BindingErrorPrefix, PolicyErrorPrefix} {
		if after, ok := strings.CutPrefix(text, prefix); ok {
			text, found, first = after, bindingError, len(after)
		}
	}
	for _, kind := range errorKinds() {
		for _, beginning := range kind.beginnings {
			if at := strings.Index(text[:min(len(text), first+len(beginning)-1)], beginning); at >= 0 {
				found, first = kind.name, at
			}
		}
	}
	return found
}
