package doctor

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"
)

const (
	// maxNotice is the longest remaining validity that is reported.
	maxNotice = 30 * 24 * time.Hour
	// noticeParts is the part of its lifetime in which a certificate should have been
	// replaced: certificates of a day need no notice of a month.
	noticeParts = 10
)

// certificatesIn returns the certificates that API servers read from a bundle. As they
// do, it skips everything else.
func certificatesIn(bundle []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for len(bundle) > 0 {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 {
			continue
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, certificate)
		}
	}
	return out
}

// Expiry returns the time until which a bundle has a certificate; false if it has none.
func Expiry(bundle []byte) (time.Time, bool) {
	var last time.Time
	for _, certificate := range certificatesIn(bundle) {
		if certificate.NotAfter.After(last) {
			last = certificate.NotAfter
		}
	}
	return last, !last.IsZero()
}

func (c *checker) valid(certificate *x509.Certificate) bool {
	return !c.now.Before(certificate.NotBefore) && !c.now.After(certificate.NotAfter)
}

// bundle checks a caBundle without the certificate that it should verify.
func (c *checker) bundle(w *webhook) {
	const field = "clientConfig.caBundle"
	if len(w.ClientConfig.CABundle) == 0 {
		if w.ClientConfig.Service != nil {
			c.outage(w, "bundle-empty", field,
				"caBundle is empty, and public authorities issue no certificate for a Service",
				"set it to the CA certificate of the Service, or repair the controller that injects it")
		}
		return
	}
	certificates := certificatesIn(w.ClientConfig.CABundle)
	if len(certificates) == 0 {
		c.outage(w, "bundle-invalid", field, "caBundle contains no PEM certificate", "set it to the CA certificate of the webhook's server, in PEM")
		return
	}
	c.validity(w, field, certificates)
}

// validity checks the certificate of a bundle that is valid for the longest time.
func (c *checker) validity(w *webhook, field string, certificates []*x509.Certificate) {
	last := slices.MaxFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	switch {
	case c.now.After(last.NotAfter):
		c.outage(w, "bundle-expired", field, fmt.Sprintf("every certificate of the caBundle has expired, the last one on %s", date(last.NotAfter)),
			"renew the CA certificate, and repair the controller that injects it")
	case !slices.ContainsFunc(certificates, c.valid):
		c.outage(w, "bundle-not-yet-valid", field, fmt.Sprintf("no certificate of the caBundle is valid yet, the last one from %s", date(last.NotBefore)),
			"correct the clock of the issuer, or issue the CA certificate again")
	case c.expires(last):
		c.about(w, Warning, "bundle-expires", field, fmt.Sprintf("the last certificate of the caBundle expires on %s, in %s", date(last.NotAfter), c.until(last.NotAfter)),
			"renew the CA certificate, and check why the controller that injects it has not")
	}
}

// expires reports whether a certificate should have been replaced.
func (c *checker) expires(certificate *x509.Certificate) bool {
	notice := min(maxNotice, certificate.NotAfter.Sub(certificate.NotBefore)/noticeParts)
	return certificate.NotAfter.Sub(c.now) < notice
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// until returns the time until t in days, or more precisely on the last day.
func (c *checker) until(t time.Time) string {
	const day = 24 * time.Hour
	if left := t.Sub(c.now); left < day {
		return left.Round(time.Minute).String()
	}
	return fmt.Sprintf("%d days", t.Sub(c.now)/day)
}

// bundles finds webhooks that call the same port of a Service and trust no common
// certificate: at most one of them can work, unless certificates are cross-signed. A
// handshake gives a better answer.
func (c *checker) bundles() {
	first := map[Target]*webhook{}
	for _, w := range c.webhooks {
		target, ok := w.target()
		if _, probed := c.Handshakes[target]; !ok || probed || len(c.usable(w)) == 0 {
			continue
		}
		other := first[target]
		if other == nil {
			first[target] = w
			continue
		}
		if !overlap(c.usable(w), c.usable(other)) {
			c.about(w, Warning, "bundles-differ", "clientConfig.caBundle",
				fmt.Sprintf("caBundle has no certificate in common with that of %s, which calls the same Service: unless its certificates are cross-signed, at most one of them verifies it", other),
				"set both to the CA certificate of the Service; --probe shows which one is wrong")
		}
	}
}

// usable returns the valid certificates of a webhook's bundle.
func (c *checker) usable(w *webhook) []*x509.Certificate {
	return slices.DeleteFunc(certificatesIn(w.ClientConfig.CABundle), func(certificate *x509.Certificate) bool { return !c.valid(certificate) })
}

func overlap(a, b []*x509.Certificate) bool {
	return slices.ContainsFunc(a, func(x *x509.Certificate) bool { return slices.ContainsFunc(b, x.Equal) })
}
