// Package egress says which backends policies may name, and which addresses
// Ostiary connects to on behalf of authors of policies.
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

// Rule is what holds for backends. The zero value refuses every address that
// belongs to a host itself, to its link, or to the metadata of a cloud. It is safe
// for concurrent use.
type Rule struct {
	// DisableBackends refuses every backend.
	DisableBackends bool
	// Permitted are addresses that are accepted although they would be refused.
	Permitted []netip.Prefix
}

// CheckHost refuses a host, of a URL, that is or names a refused address, and each
// whose meaning depends on who resolves it. What another name resolves to is
// only known when somebody connects: see Control.
func (r Rule) CheckHost(host string) error {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if address, err := netip.ParseAddr(name); err == nil {
		return r.check(address)
	}
	switch {
	case isNumeric(name):
		return fmt.Errorf("%q is an unusual form of an IP address: write four decimal numbers, as 192.0.2.1", host)
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return fmt.Errorf("%q is neither a DNS name nor an IP address: write one in ASCII", host)
	case isLocalName(name):
		if r.permits(netip.AddrFrom4([4]byte{127, 0, 0, 1})) || r.permits(netip.IPv6Loopback()) {
			return nil
		}
		return fmt.Errorf("%q is the caller's own host: name a server that every API server reaches", host)
	case slices.Contains([]string{"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}, name):
		return fmt.Errorf("%q serves the metadata of a cloud: name a server of your own", host)
	}
	return nil
}

// Control is that of a net.Dialer. It refuses addresses after their names have
// been resolved, so no answer of a DNS server leads elsewhere.
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
	return fmt.Errorf("%s is %s: name another server, or permit the address with --permitted-backend-addresses", address, what)
}

func (r Rule) permits(address netip.Addr) bool {
	return slices.ContainsFunc(r.Permitted, func(p netip.Prefix) bool { return p.Contains(address) })
}

// special says what kind of address is refused, "" for others.
func special(a netip.Addr) string {
	switch a.String() {
	case "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254":
		return "an address of the metadata of a cloud"
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

// embedded is the IPv4 address to which a gateway or a host translates an IPv6
// address: NAT64 (RFC 6052), 6to4 (RFC 3056), and the IPv4-translated and
// IPv4-compatible forms (RFC 2765, RFC 4291). Other addresses stay as they are.
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

// isNumeric reports whether some resolvers read a name as an IPv4 address: by the
// URL standard, each whose last label is a number.
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
