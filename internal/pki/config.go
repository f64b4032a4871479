package pki

import (
	"cmp"
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

	// backdate is how far NotBefore lies in the past, so that a verifier whose
	// clock is behind accepts a fresh certificate.
	backdate = time.Hour

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
	// leaf that is still good.
	Overlap time.Duration
}

// WithDefaults returns the configuration with every zero field filled in. A CA
// is replaced at half of its life, a leaf at two thirds.
func (c Config) WithDefaults() Config {
	c.CALifetime = cmp.Or(c.CALifetime, defaultCALifetime)
	c.CARenewAfter = cmp.Or(c.CARenewAfter, c.CALifetime/2)
	c.LeafLifetime = cmp.Or(c.LeafLifetime, defaultLeafLifetime)
	c.LeafRenewAfter = cmp.Or(c.LeafRenewAfter, c.LeafLifetime/3*2)
	c.Overlap = cmp.Or(c.Overlap, defaultOverlap)
	return c
}

// Validate says what is wrong with a configuration whose defaults have been
// filled in.
func (c Config) Validate() error {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"CARenewAfter", c.CARenewAfter},
		{"LeafRenewAfter", c.LeafRenewAfter},
		{"Overlap", c.Overlap},
		{"CALifetime minus CARenewAfter", c.CALifetime - c.CARenewAfter},
		{"LeafLifetime minus LeafRenewAfter", c.LeafLifetime - c.LeafRenewAfter},
	} {
		if f.value < minPeriod {
			return fmt.Errorf("%s is %s: make it at least %s", f.name, f.value, minPeriod)
		}
	}
	if rest := c.CALifetime - c.CARenewAfter; c.LeafLifetime > rest {
		return fmt.Errorf("LeafLifetime is %s: make it at most %s, which is what a CA has left when it is replaced", c.LeafLifetime, rest)
	}
	if c.Overlap >= c.CARenewAfter {
		return fmt.Errorf("the overlap of two CAs is %s: make Overlap shorter than CARenewAfter, %s", c.Overlap, c.CARenewAfter)
	}
	return nil
}
