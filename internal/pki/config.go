package pki

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"time"
)

// The lifetimes that are used where a [Config] is silent.
const (
	defaultCALifetime   = 3 * 365 * day
	defaultLeafLifetime = 90 * day
	// defaultOverlap is longer than the ten minutes after which an API server
	// has resynchronised its webhook configurations at the latest.
	defaultOverlap = 15 * time.Minute
)

const (
	day = 24 * time.Hour

	defaultBackdate = time.Hour

	// maxTrial is how long a pair of a new CA is tried before a replica says
	// that it will not go back.
	maxTrial = 15 * time.Second

	// minPeriod keeps every period well above the one second to which the
	// times in a certificate are rounded.
	minPeriod = 5 * time.Second
)

// Config says how long certificates live. WithDefaults fills in what is zero;
// the functions of this package expect that to have been done.
type Config struct {
	// CALifetime is how long a new CA certificate is valid.
	CALifetime time.Duration
	// CARenewAfter is the age at which the CA is replaced.
	CARenewAfter time.Duration
	// LeafLifetime is how long a new leaf is valid. A leaf never outlives its CA.
	LeafLifetime time.Duration
	// LeafRenewAfter is the age at which the leaf is replaced.
	LeafRenewAfter time.Duration
	// Overlap is how long a new CA is trusted before a leaf of it replaces a
	// leaf that is still good, where the old CA cannot vouch for the new one.
	// It is also the least time between two rotations.
	Overlap time.Duration
	// Backdate is how far NotBefore lies in the past, so that a verifier whose
	// clock is behind accepts a fresh certificate.
	Backdate time.Duration
	// External says that somebody else issues the certificates. Then only
	// LeafLifetime, LeafRenewAfter and Overlap mean anything.
	External bool
}

// WithDefaults returns the configuration with every zero field filled in. A CA
// is replaced at half of its life, a leaf at two thirds.
func (c Config) WithDefaults() Config {
	c.CALifetime = cmp.Or(c.CALifetime, defaultCALifetime)
	c.CARenewAfter = cmp.Or(c.CARenewAfter, c.CALifetime/2)
	c.LeafLifetime = cmp.Or(c.LeafLifetime, defaultLeafLifetime)
	c.LeafRenewAfter = cmp.Or(c.LeafRenewAfter, c.LeafLifetime/3*2)
	c.Overlap = cmp.Or(c.Overlap, defaultOverlap)
	c.Backdate = cmp.Or(c.Backdate, defaultBackdate)
	return c
}

// ConfigError says what is wrong with one field of a Config, and how to mend it.
type ConfigError struct {
	Field  string
	Value  time.Duration
	Detail string
}

// Error implements error.
func (e *ConfigError) Error() string { return fmt.Sprintf("%s is %s: %s", e.Field, e.Value, e.Detail) }

// Validate says what is wrong with a configuration whose defaults have been
// filled in: a *ConfigError, or nil.
func (c Config) Validate() error {
	for _, f := range []ConfigError{
		{Field: "CARenewAfter", Value: c.CARenewAfter},
		{Field: "LeafRenewAfter", Value: c.LeafRenewAfter},
		{Field: "Overlap", Value: c.Overlap},
	} {
		if f.Value < minPeriod && (!c.External || f.Field != "CARenewAfter") {
			return &ConfigError{f.Field, f.Value, fmt.Sprintf("make it at least %s", minPeriod)}
		}
	}
	if c.LeafLifetime-c.LeafRenewAfter < minPeriod {
		return &ConfigError{"LeafLifetime", c.LeafLifetime, fmt.Sprintf("make it at least %s longer than the age of replacement, %s", minPeriod, c.LeafRenewAfter)}
	}
	if c.External {
		return nil
	}
	return c.validateCA()
}

// validateCA is about what matters only to who has a CA.
func (c Config) validateCA() error {
	if c.CALifetime-c.CARenewAfter < minPeriod {
		return &ConfigError{"CALifetime", c.CALifetime, fmt.Sprintf("make it at least %s longer than the age of replacement, %s", minPeriod, c.CARenewAfter)}
	}
	if rest := c.CALifetime - c.CARenewAfter; c.LeafLifetime > rest {
		return &ConfigError{"LeafLifetime", c.LeafLifetime, fmt.Sprintf("make it at most %s, which is what a CA has left when it is replaced", rest)}
	}
	if c.Backdate < 0 || c.Backdate > day {
		return &ConfigError{"Backdate", c.Backdate, fmt.Sprintf("make it at most %s, and not negative", day)}
	}
	if c.Overlap >= c.CARenewAfter {
		return &ConfigError{"Overlap", c.Overlap, fmt.Sprintf("make it shorter than the age at which a CA is replaced, %s", c.CARenewAfter)}
	}
	return nil
}

// validity is that of a certificate made now, by either clock.
func (c Config) validity(clocks Clocks, lifetime time.Duration) (notBefore, notAfter time.Time) {
	return clocks.early().UTC().Truncate(time.Second).Add(-c.Backdate), clocks.late().UTC().Truncate(time.Second).Add(lifetime)
}

// start is the moment at which a certificate was made.
func (c Config) start(cert *x509.Certificate) time.Time { return cert.NotBefore.Add(c.Backdate) }

// MinimumLeft is how much life a served certificate must have left for the
// replica to count as ready: a day, or a tenth of a short lifetime.
func (c Config) MinimumLeft(cert *x509.Certificate) time.Duration {
	return min(day, cert.NotAfter.Sub(c.start(cert))/10)
}

// Periods says how long replicas try a pair of a new CA, and how long they go
// back to the one before: until API servers cannot be behind any more.
func (c Config) Periods() Periods {
	return Periods{Trial: min(maxTrial, c.Overlap/60), Fallback: c.Overlap}
}
