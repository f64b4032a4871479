package options

import "github.com/ostiary/ostiary/internal/sensitive"

// Constraint describes valid values of a flag, or of the elements of a list, for the schema of the
// chart. It accepts every value that Validate accepts. Limits that depend on other flags, ranges of
// durations and sizes, and the names of Ostiary's own Secrets are checked only by Validate.
type Constraint struct {
	Enum    []string
	Pattern string // RE2, of the whole value
	// Minimum and Maximum are limits of a number, if Maximum is not 0.
	Minimum, Maximum int
}

const (
	labelPattern     = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`
	servicePattern   = `[a-z]([-a-z0-9]{0,61}[a-z0-9])?`
	subdomainPattern = `[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*`
	kindPattern      = `[A-Z]([-A-Za-z0-9]*[A-Za-z0-9])?`
	highPortPattern  = `6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}`
	addressPattern   = `(\[[^\[\]]*\]|[^:\[\]]*):(` + highPortPattern + `|[0-5]?[0-9]{1,4})`
)

func logLevels() []string  { return []string{"debug", "info", "warn", "error"} }
func logFormats() []string { return []string{"json", "console"} }

func violationReports() []string { return []string{"log", "events"} }

// Constraints returns the constraints of flag values, by the name of the flag.
func Constraints() map[string]Constraint {
	pattern := func(text string) Constraint { return Constraint{Pattern: "^(" + text + ")$"} }
	count := Constraint{Maximum: maxCount}
	return map[string]Constraint{
		"log-level":                   {Enum: logLevels()},
		"log-format":                  {Enum: logFormats()},
		"report-violations":           {Enum: violationReports()},
		"sensitive-resources":         pattern(sensitive.Pattern),
		"namespace":                   pattern(labelPattern),
		"exempt-namespaces":           pattern(labelPattern),
		"webhook-address":             pattern(addressPattern),
		"metrics-address":             pattern("0|" + addressPattern),
		"health-address":              pattern("0|" + addressPattern),
		"webhook-service":             pattern("|" + labelPattern + "/" + servicePattern + "(:(" + highPortPattern + "|[1-5][0-9]{4}|[1-9][0-9]{0,3}))?"),
		"webhook-url":                 pattern(`|https://(\[[0-9a-fA-F:.]+\]|[^/?#@:\[\]\s]+)(:[0-9]*)?/*`),
		"cert-manager-issuer":         pattern("|(" + kindPattern + `(\.` + subdomainPattern + ")?/)?" + subdomainPattern),
		"certificate-secret":          pattern("|" + subdomainPattern),
		"caller-token-secret":         pattern("|" + subdomainPattern),
		"caller-basic-secret":         pattern("|" + subdomainPattern),
		"params-account":              pattern("|" + subdomainPattern),
		"client-names":                pattern(`[^*\s]|[^*\s][^*]*[^*\s]`),
		"permitted-backend-addresses": pattern(`([0-9]+(\.[0-9]+){3}|[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*(%[^/]+)?)(/[0-9]{1,3})?`),
		"max-body-memory":             pattern(`\+?[0-9]+(\.[0-9]*)?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?`),
		"max-cache-memory":            pattern(`\+?[0-9]+(\.[0-9]*)?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?`),
		"lookup-memory":               pattern(`\+?[0-9]+(\.[0-9]*)?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?`),
		"lookup-entries":              {Minimum: minLookupEntries, Maximum: maxLookupEntries},
		"max-evaluations":             count,
		"max-in-flight":               count,
		"max-connections":             count,
	}
}
