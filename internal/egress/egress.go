// Package egress limits the backends that policies may use and the addresses that
// Ostiary connects to for them.
package egress

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Rule limits backends. The zero value rejects addresses of the host itself, of
// its link and of cloud metadata services. It is safe for concurrent use.
type Rule struct {
	// DisableBackends rejects every backend.
	DisableBackends bool
	// Permitted are addresses that are accepted nevertheless.
	Permitted []netip.Prefix
}

// CheckHost rejects the host of a URL if it is or names a rejected address, or if
// its meaning depends on the resolver. Addresses of other names are checked when a
// connection is made: see Control.
func (r Rule) CheckHost(host string) error {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if address, err := netip.ParseAddr(name); err == nil {
		return r.check(address)
	}
	switch {
	case isNumeric(name):
		return fmt.Errorf("%q is an unusual form of an IP address: use four decimal numbers, such as 192.0.2.1", host)
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return fmt.Errorf("%q is neither a DNS name nor an IP address: use one in ASCII", host)
	case isLocalName(name):
		if r.permits(netip.AddrFrom4([4]byte{127, 0, 0, 1})) || r.permits(netip.IPv6Loopback()) {
			return nil
		}
		return fmt.Errorf("%q is the caller's own host: use a server that every API server reaches", host)
	case slices.Contains([]string{"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}, name):
		return fmt.Errorf("%q is a cloud metadata service: use another server", host)
	}
	return nil
}

// Control is for net.Dialer. It checks addresses after their names have been
// resolved, so that DNS cannot bypass the rule.
func (r Rule) Control(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("dialing %q: %w", address, err)
	}
	parsed, err := netip.ParseAddr(host)
	if err != nil {
		return fmt.Errorf("dialing %q: %w", address, err)
	}
	return r.check(parsed)
}

func (r Rule) check(address netip.Addr) error {
	plain := embedded(address.WithZone("").Unmap())
	what := special(plain)
	if what == "" || r.permits(plain) {
		return nil
	}
	return fmt.Errorf("%s is %s: use another server, or permit the address with --permitted-backend-addresses", address, what)
}

func (r Rule) permits(address netip.Addr) bool {
	return slices.ContainsFunc(r.Permitted, func(p netip.Prefix) bool { return p.Contains(address) })
}

// special returns the kind of a rejected address, "" for others.
func special(a netip.Addr) string {
	switch a.String() {
	case "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254":
		return "a cloud metadata address"
	case "255.255.255.255":
		return "the broadcast address"
	}
	switch {
	case a.IsLoopback():
		return "a loopback address"
	case a.IsUnspecified(), a.Is4() && a.As4()[0] == 0:
		return "an unspecified address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a.IsMulticast():
		return "a multicast address"
	}
	return ""
}

// embedded returns the IPv4 address in an IPv6 address that is translated: NAT64
// (RFC 6052), 6to4 (RFC 3056), IPv4-translated and IPv4-compatible (RFC 2765, RFC
// 4291). It returns other addresses unchanged.
func embedded(a netip.Addr) netip.Addr {
	if !a.Is6() || a.IsUnspecified() || a.IsLoopback() {
		return a
	}
	raw := a.As16()
	for _, prefix := range []string{"64:ff9b::/96", "::ffff:0:0:0/96", "::/96"} {
		if netip.MustParsePrefix(prefix).Contains(a) {
			return netip.AddrFrom4([4]byte(raw[12:]))
		}
	}
	if netip.MustParsePrefix("2002::/16").Contains(a) {
		return netip.AddrFrom4([4]byte(raw[2:6]))
	}
	return a
}

// isNumeric reports whether resolvers may read the name as an IPv4 address. In the
// URL standard, those are names whose last label is a number.
func isNumeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`).MatchString(last)
}

func isLocalName(name string) bool {
	switch name {
	case "localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback":
		return true
	}
	return strings.HasSuffix(name, ".localhost") || strings.HasSuffix(name, ".localdomain") || strings.HasSuffix(name, ".localdomain4") || strings.HasSuffix(name, ".localdomain6")
}
