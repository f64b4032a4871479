package doctor

import (
	"crypto/x509"
	"errors"
	"fmt"
)

// handshake checks what a webhook's server serves against what API servers expect.
func (c *checker) handshake(w *webhook) {
	t, ok := w.target()
	h, known := c.Handshakes[t]
	if !ok || !known {
		return
	}
	if h.Err != nil || len(h.Chain) == 0 {
		c.outage(w, "handshake-failed", "clientConfig.service", fmt.Sprintf("Pod %s does not complete a TLS handshake: %v", h.Pod, h.Err),
			"check that the Service's targetPort is the port at which the webhook serves TLS")
		return
	}
	if roots := c.roots(w); roots != nil {
		c.verify(w, t, h, roots)
	}
	if leaf := h.Chain[0]; c.valid(leaf) && c.expires(leaf) {
		c.about(w, Warning, "certificate-expires", "clientConfig.service", fmt.Sprintf("the certificate that Pod %s serves expires on %s, in %s", h.Pod, date(leaf.NotAfter), c.until(leaf.NotAfter)),
			"check why its issuer has not renewed it, or whether the Pod has not loaded the new one")
	}
}

// roots returns the certificates of a webhook's bundle; nil if another check has found
// that there are none. The caBundle replaces the system's authorities.
func (c *checker) roots(w *webhook) *x509.CertPool {
	certificates := certificatesIn(w.ClientConfig.CABundle)
	if len(certificates) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	for _, certificate := range certificates {
		pool.AddCert(certificate)
	}
	return pool
}

// verify verifies a chain as API servers do: for the DNS name of the Service.
func (c *checker) verify(w *webhook, t Target, h Handshake, roots *x509.CertPool) {
	intermediates := x509.NewCertPool()
	for _, certificate := range h.Chain[1:] {
		intermediates.AddCert(certificate)
	}
	name := t.Name + "." + t.Namespace + ".svc"
	_, err := h.Chain[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: intermediates, CurrentTime: c.now})
	var wrongName x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
	case errors.As(err, &wrongName):
		c.outage(w, "certificate-name", "clientConfig.service", fmt.Sprintf("the certificate that Pod %s serves is not for %s", h.Pod, name),
			"issue a certificate with this DNS name")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && !c.valid(h.Chain[0]):
		c.outage(w, "certificate-expired", "clientConfig.service", fmt.Sprintf("the certificate that Pod %s serves is valid from %s to %s only", h.Pod, date(h.Chain[0].NotBefore), date(h.Chain[0].NotAfter)),
			"renew it, and check that the Pod loads the new one")
	default:
		c.outage(w, "bundle-does-not-verify", "clientConfig.caBundle", fmt.Sprintf("caBundle does not verify the certificate that Pod %s serves: %v", h.Pod, err),
			"set caBundle to the CA certificate that issued it, or repair the controller that injects it")
	}
}
