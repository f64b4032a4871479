package egress

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestCheckHost(t *testing.T) {
	loopback := Rule{Permitted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	const (
		numeric  = "is an unusual form of an IP address: use four decimal numbers, such as 192.0.2.1"
		metadata = "is a cloud metadata address: use another server, or permit the address with --permitted-backend-addresses"
	)
	tests := map[string]struct {
		rule Rule
		host string
		want string // of the error
	}{
		"a name":                       {host: "checks.example.com"},
		"a name with a dot at its end": {host: "checks.example.com."},
		"a name in capital letters":    {host: "Checks.Example.com"},
		"a name with digits":           {host: "1.checks4"},
		"a private address":            {host: "10.1.2.3"},
		"a public IPv6 address":        {host: "2001:db8::1"},
		"a unique local IPv6 address":  {host: "fd00::1"},
		"loopback": {
			host: "127.0.0.1",
			want: "127.0.0.1 is a loopback address: use another server, or permit the address with --permitted-backend-addresses",
		},
		"another loopback":              {host: "127.8.9.10", want: "a loopback address"},
		"loopback, permitted":           {rule: loopback, host: "127.0.0.1"},
		"IPv6 loopback":                 {host: "::1", want: "a loopback address"},
		"IPv6 loopback, IPv4 permitted": {rule: loopback, host: "::1", want: "a loopback address"},
		"IPv4-mapped loopback":          {host: "::ffff:127.0.0.1", want: "a loopback address"},
		"IPv4-mapped loopback in hex":   {host: "::ffff:7f00:1", want: "a loopback address"},
		"IPv4-compatible loopback":      {host: "::7f00:1", want: "a loopback address"},
		"IPv4-translated loopback":      {host: "::ffff:0:7f00:1", want: "a loopback address"},
		"NAT64 loopback":                {host: "64:ff9b::7f00:1", want: "a loopback address"},
		"6to4 metadata":                 {host: "2002:a9fe:a9fe::", want: metadata},
		"metadata":                      {host: "169.254.169.254", want: metadata},
		"metadata behind NAT64":         {host: "64:ff9b::a9fe:a9fe", want: metadata},
		"metadata of AWS by IPv6":       {host: "fd00:ec2::254", want: metadata},
		"metadata of Alibaba":           {host: "100.100.100.200", want: metadata},
		"metadata of Azure":             {host: "168.63.129.16", want: metadata},
		"metadata by name": {
			host: "metadata.google.internal",
			want: `"metadata.google.internal" is a cloud metadata service: use another server`,
		},
		"metadata by name in capitals": {host: "Metadata.Google.Internal.", want: "is a cloud metadata service"},
		"metadata, loopback permitted": {rule: loopback, host: "169.254.169.254", want: metadata},
		"link-local":                   {host: "169.254.1.1", want: "a link-local address"},
		"IPv6 link-local":              {host: "fe80::1", want: "a link-local address"},
		"IPv6 link-local with a zone":  {host: "fe80::1%eth0", want: "a link-local address"},
		"IPv6 loopback with a zone":    {host: "::1%lo", want: "a loopback address"},
		"unspecified":                  {host: "0.0.0.0", want: "an unspecified address"},
		"this network":                 {host: "0.1.2.3", want: "an unspecified address"},
		"IPv6 unspecified":             {host: "::", want: "an unspecified address"},
		"multicast":                    {host: "224.0.0.1", want: "a multicast address"},
		"IPv6 multicast":               {host: "ff02::1", want: "a multicast address"},
		"broadcast":                    {host: "255.255.255.255", want: "the broadcast address"},
		"localhost": {
			host: "localhost",
			want: `"localhost" is the caller's own host: use a server that every API server reaches`,
		},
		"localhost in capitals with a dot":   {host: "LocalHost.", want: "the caller's own host"},
		"below localhost":                    {host: "a.localhost", want: "the caller's own host"},
		"localhost.localdomain":              {host: "localhost.localdomain", want: "the caller's own host"},
		"localhost, permitted":               {rule: loopback, host: "localhost"},
		"a decimal number":                   {host: "2130706433", want: numeric},
		"a hexadecimal number":               {host: "0x7f000001", want: numeric},
		"hexadecimal parts":                  {host: "0x7f.0.0.0x1", want: numeric},
		"octal parts":                        {host: "0177.0.0.1", want: numeric},
		"two parts":                          {host: "127.1", want: numeric},
		"two parts with a dot at the end":    {host: "127.1.", want: numeric},
		"a decimal number, loopback allowed": {rule: loopback, host: "2130706433", want: numeric},
		"full-width digits":                  {host: "１２７.0.0.1", want: numeric},
		"full-width letters":                 {host: "ｌocalhost", want: `is neither a DNS name nor an IP address: use one in ASCII`},
		"ideographic full stops":             {host: "127。0。0。1", want: "use one in ASCII"},
		"nothing":                            {host: "", want: "neither a DNS name nor an IP address"},
		"two dots":                           {host: "localhost..", want: "neither a DNS name nor an IP address"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.rule.CheckHost(tt.host)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("CheckHost(%q) = %v, want %q", tt.host, err, tt.want)
			}
		})
	}
}

// A name that passes the check and resolves to a refused address is not called.
func TestControl(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	permitted := Rule{Permitted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	for name, tt := range map[string]struct {
		rule Rule
		host string
		want bool
	}{
		"a name of loopback":            {host: "localhost"},
		"loopback":                      {host: "127.0.0.1"},
		"IPv4-mapped loopback":          {host: "::ffff:127.0.0.1"},
		"loopback, permitted":           {rule: permitted, host: "127.0.0.1", want: true},
		"a name of loopback, permitted": {rule: permitted, host: "localhost", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			dialer := net.Dialer{Control: tt.rule.Control}
			conn, err := dialer.DialContext(context.WithoutCancel(t.Context()), "tcp", net.JoinHostPort(tt.host, port))
			if err == nil {
				conn.Close()
			}
			if (err == nil) != tt.want {
				t.Errorf("dialing %s: %v, want it to succeed: %t", tt.host, err, tt.want)
			}
		})
	}
}

func FuzzCheckHost(f *testing.F) {
	for _, host := range []string{"127.0.0.1", "localhost", "0x7f.1", "::ffff:7f00:1", "fe80::1%lo", "a.example.com"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if (Rule{}).CheckHost(host) != nil {
			return
		}
		if address, err := netip.ParseAddr(host); err == nil && (address.IsLoopback() || address.IsLinkLocalUnicast() ||
			address.Unmap().IsLoopback()) {
			t.Errorf("%q is accepted", host)
		}
	})
}
