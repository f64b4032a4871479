package pki

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"time"
)

// Defaults of [Config].
const (
	defaultCALifetime   = 3 * 365 * day
	defaultLeafLifetime = 90 * day
	// defaultOverlap exceeds the ten minutes within which every API server resyncs
	// its webhook configurations.
	defaultOverlap = 15 * time.Minute
)

const (
	day = 24 * time.Hour

	defaultBackdate = time.Hour

	// maxTrial is the longest trial of a serving certificate of a new CA. See
	// [Periods].
	maxTrial = 15 * time.Second

	// minPeriod is well above one second, the resolution of times in a certificate.
	minPeriod = 5 * time.Second
)

// Config holds the lifetimes of certificates. The functions of this package expect
// a Config from WithDefaults, which fills in zero fields.
type Config struct {
	// CALifetime is how long a new CA certificate is valid.
	CALifetime time.Duration
	// CARenewAfter is the age at which the CA is replaced.
	CARenewAfter time.Duration
	// LeafLifetime is how long a new leaf is valid. A leaf never outlives its CA.
	LeafLifetime time.Duration
	// LeafRenewAfter is the age at which the leaf is replaced.
	LeafRenewAfter time.Duration
	// Overlap is how long a new CA is trusted before its serving certificate replaces
	// a valid one, if there is no cross-certificate. It is also the minimum time
	// between two rotations.
	Overlap time.Duration
	// Backdate is how far NotBefore lies in the past, so that a verifier with a slow
	// clock accepts a new certificate.
	Backdate time.Duration
	// External means that an external issuer, such as cert-manager, issues the
	// certificates. Then only LeafLifetime, LeafRenewAfter and Overlap are used.
	External bool
}

// WithDefaults returns the configuration with zero fields filled in. By default, a
// CA is replaced after half of its lifetime and a serving certificate after two
// thirds.
func (c Config) WithDefaults() Config {
	c.CALifetime = cmp.Or(c.CALifetime, defaultCALifetime)
	c.CARenewAfter = cmp.Or(c.CARenewAfter, c.CALifetime/2)
	c.LeafLifetime = cmp.Or(c.LeafLifetime, defaultLeafLifetime)
	c.LeafRenewAfter = cmp.Or(c.LeafRenewAfter, c.LeafLifetime/3*2)
	c.Overlap = cmp.Or(c.Overlap, defaultOverlap)
	c.Backdate = cmp.Or(c.Backdate, defaultBackdate)
	return c
}

// ConfigError names one invalid field of a Config and how to fix it.
type ConfigError struct {
	Field  string
	Value  time.Duration
	Detail string
}

// Error implements error.
func (e *ConfigError) Error() string { return fmt.Sprintf("%s is %s: %s", e.Field, e.Value, e.Detail) }

// Validate returns a *ConfigError for the first invalid field, or nil. Call
// WithDefaults first.
func (c Config) Validate() error {
	for _, f := range []ConfigError{
		{Field: "CARenewAfter", Value: c.CARenewAfter},
		{Field: "LeafRenewAfter", Value: c.LeafRenewAfter},
		{Field: "Overlap", Value: c.Overlap},
	} {
		if f.Value < minPeriod && (!c.External || f.Field != "CARenewAfter") {
			return &ConfigError{f.Field, f.Value, fmt.Sprintf("must be at least %s", minPeriod)}
		}
	}
	if c.LeafLifetime-c.LeafRenewAfter < minPeriod {
		return &ConfigError{"LeafLifetime", c.LeafLifetime, fmt.Sprintf("must exceed the renewal age %[2]s by at least %[1]s", minPeriod, c.LeafRenewAfter)}
	}
	if c.External {
		return nil
	}
	return c.validateCA()
}

// validateCA validates the fields that are used only if Ostiary has its own CA.
func (c Config) validateCA() error {
	if c.CALifetime-c.CARenewAfter < minPeriod {
		return &ConfigError{"CALifetime", c.CALifetime, fmt.Sprintf("must exceed the renewal age %[2]s by at least %[1]s", minPeriod, c.CARenewAfter)}
	}
	if rest := c.CALifetime - c.CARenewAfter; c.LeafLifetime > rest {
		return &ConfigError{"LeafLifetime", c.LeafLifetime, fmt.Sprintf("must be at most %s, the remaining lifetime of a CA when it is replaced", rest)}
	}
	if c.Backdate < 0 || c.Backdate > day {
		return &ConfigError{"Backdate", c.Backdate, fmt.Sprintf("must be between 0 and %s", day)}
	}
	if c.Overlap >= c.CARenewAfter {
		return &ConfigError{"Overlap", c.Overlap, fmt.Sprintf("must be shorter than CARenewAfter, %s", c.CARenewAfter)}
	}
	return nil
}

// validity returns the validity period of a certificate created now. It is valid
// by both clocks.
func (c Config) validity(clocks Clocks, lifetime time.Duration) (notBefore, notAfter time.Time) {
	return clocks.early().UTC().Truncate(time.Second).Add(-c.Backdate), clocks.late().UTC().Truncate(time.Second).Add(lifetime)
}

// start returns when a certificate was created.
func (c Config) start(cert *x509.Certificate) time.Time { return cert.NotBefore.Add(c.Backdate) }

// MinimumLeft returns the remaining lifetime below which a replica with this
// serving certificate is not ready: one day, or a tenth of a shorter lifetime.
func (c Config) MinimumLeft(cert *x509.Certificate) time.Duration {
	return min(day, cert.NotAfter.Sub(c.start(cert))/10)
}

// Periods returns how long a replica tries the pair of a new CA, and how long it
// falls back to the previous pair: until no API server can be behind.
func (c Config) Periods() Periods {
	return Periods{Trial: min(maxTrial, c.Overlap/60), Fallback: c.Overlap}
}
