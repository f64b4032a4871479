package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// maxNames bounds the names of one certificate.
const maxNames = 32

// Names are the names under which API servers call Ostiary.
type Names struct {
	DNS []string
	IPs []net.IP
}

// Validate reports the first invalid name.
func (n Names) Validate() error {
	switch count := len(n.DNS) + len(n.IPs); {
	case count == 0:
		return errors.New("no server name: give at least one DNS name or IP address")
	case count > maxNames:
		return fmt.Errorf("%d server names: give at most %d", count, maxNames)
	}
	for _, name := range n.DNS {
		if !validDNSName(name) {
			return fmt.Errorf("server name %q: must be a DNS name in lower case without wildcard", name)
		}
	}
	for _, ip := range n.IPs {
		if ip.To16() == nil {
			return fmt.Errorf("server address of %d bytes: must be an IP address of 4 or 16 bytes", len(ip))
		}
	}
	return nil
}

func validDNSName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

// canonical returns the names sorted and without duplicates, every address in
// its shortest form.
func (n Names) canonical() Names {
	dns := slices.Sorted(slices.Values(n.DNS))
	var ips []net.IP
	for _, ip := range n.IPs {
		if v4 := ip.To4(); v4 != nil {
			ip = v4
		}
		ips = append(ips, ip)
	}
	slices.SortFunc(ips, func(a, b net.IP) int { return bytes.Compare(a, b) })
	return Names{DNS: slices.Compact(dns), IPs: slices.CompactFunc(ips, net.IP.Equal)}
}

// equal reports whether a certificate carries exactly these names.
func (n Names) equal(cert *x509.Certificate) bool {
	want, got := n.canonical(), Names{DNS: cert.DNSNames, IPs: cert.IPAddresses}.canonical()
	return slices.Equal(want.DNS, got.DNS) && slices.EqualFunc(want.IPs, got.IPs, net.IP.Equal)
}

// coveredBy returns an error for the first name that the certificate does not
// cover.
func (n Names) coveredBy(cert *x509.Certificate) error {
	for _, name := range n.DNS {
		if err := cert.VerifyHostname(name); err != nil {
			return err
		}
	}
	for _, ip := range n.IPs {
		if err := cert.VerifyHostname(ip.String()); err != nil {
			return err
		}
	}
	return nil
}

// permittedBy reports whether the name constraints of a CA contain each of the
// names exactly. A CA with wider constraints was not created by this package and
// is rejected.
func (n Names) permittedBy(ca *x509.Certificate) bool {
	for _, name := range n.DNS {
		if !slices.Contains(ca.PermittedDNSDomains, name) {
			return false
		}
	}
	for _, ip := range n.ipNets() {
		if !slices.ContainsFunc(ca.PermittedIPRanges, func(r *net.IPNet) bool { return r.String() == ip.String() }) {
			return false
		}
	}
	return true
}

// ipNets returns one range per address.
func (n Names) ipNets() []*net.IPNet {
	var nets []*net.IPNet
	for _, ip := range n.canonical().IPs {
		bits := len(ip) * 8
		nets = append(nets, &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)})
	}
	return nets
}

// allIPNets returns the two ranges that contain every address.
func allIPNets() []*net.IPNet {
	return []*net.IPNet{
		{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
		{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
	}
}
