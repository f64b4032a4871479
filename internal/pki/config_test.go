package pki

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestConfigDefaults(t *testing.T) {
	tests := map[string]struct{ in, want Config }{
		"nothing given": {
			Config{},
			Config{
				CALifetime:     26280 * time.Hour,
				CARenewAfter:   13140 * time.Hour,
				LeafLifetime:   2160 * time.Hour,
				LeafRenewAfter: 1440 * time.Hour,
				Overlap:        15 * time.Minute,
				Backdate:       time.Hour,
			},
		},
		"lifetimes given": {
			Config{CALifetime: 10 * time.Hour, LeafLifetime: 3 * time.Hour},
			Config{
				CALifetime:     10 * time.Hour,
				CARenewAfter:   5 * time.Hour,
				LeafLifetime:   3 * time.Hour,
				LeafRenewAfter: 2 * time.Hour,
				Overlap:        15 * time.Minute,
				Backdate:       time.Hour,
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := tc.in.WithDefaults()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if err := got.Validate(); err != nil {
				t.Errorf("the defaults are not valid: %v", err)
			}
		})
	}
}

func TestConfigValidate(t *testing.T) {
	tests := map[string]struct {
		config  Config
		wantErr string
	}{
		"negative CA lifetime": {
			config:  Config{CALifetime: -time.Hour, CARenewAfter: time.Hour},
			wantErr: "CALifetime is -1h0m0s: must exceed the renewal age 1h0m0s by at least 5s",
		},
		"CA renewed too late": {
			config:  Config{CALifetime: time.Hour, CARenewAfter: time.Hour},
			wantErr: "CALifetime is 1h0m0s: must exceed the renewal age 1h0m0s by at least 5s",
		},
		"leaf renewed at once": {
			config:  Config{LeafRenewAfter: time.Second},
			wantErr: "LeafRenewAfter is 1s: must be at least 5s",
		},
		"leaf renewed too late": {
			config:  Config{LeafLifetime: time.Hour, LeafRenewAfter: 2 * time.Hour},
			wantErr: "LeafLifetime is 1h0m0s: must exceed the renewal age 2h0m0s by at least 5s",
		},
		"negative overlap": {config: Config{Overlap: -1}, wantErr: "Overlap is -1ns: must be at least 5s"},
		"leaf longer than CA": {
			config:  Config{CALifetime: 100 * day},
			wantErr: "LeafLifetime is 2160h0m0s: must be at most 1200h0m0s, the remaining lifetime of a CA when it is replaced",
		},
		"negative backdate": {
			config:  Config{Backdate: -time.Second},
			wantErr: "Backdate is -1s: must be between 0 and 24h0m0s",
		},
		"backdate too long": {
			config:  Config{Backdate: 25 * time.Hour},
			wantErr: "Backdate is 25h0m0s: must be between 0 and 24h0m0s",
		},
		"overlap too long": {
			config:  Config{Overlap: 20000 * time.Hour},
			wantErr: "Overlap is 20000h0m0s: must be shorter than CARenewAfter, 13140h0m0s",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.config.WithDefaults().Validate()
			if err == nil || err.Error() != tc.wantErr {
				t.Errorf("error = %v, want %q", err, tc.wantErr)
			}
		})
	}
}

func TestNamesValidate(t *testing.T) {
	tests := map[string]struct {
		names   Names
		wantErr string
	}{
		"good": {names: names},
		"none": {names: Names{}, wantErr: "no server name: give at least one DNS name or IP address"},
		"too many": {
			names:   Names{DNS: strings.Split(strings.Repeat("a ", 32)+"a", " ")},
			wantErr: "33 server names: give at most 32",
		},
		"upper case": {
			names:   Names{DNS: []string{"Ostiary"}},
			wantErr: `server name "Ostiary": must be a DNS name in lower case without wildcard`,
		},
		"wildcard": {
			names:   Names{DNS: []string{"*.svc"}},
			wantErr: `server name "*.svc": must be a DNS name in lower case without wildcard`,
		},
		"empty label": {
			names:   Names{DNS: []string{"a..b"}},
			wantErr: `server name "a..b": must be a DNS name in lower case without wildcard`,
		},
		"hyphen": {
			names:   Names{DNS: []string{"a-"}},
			wantErr: `server name "a-": must be a DNS name in lower case without wildcard`,
		},
		"long label": {
			names:   Names{DNS: []string{strings.Repeat("a", 64)}},
			wantErr: `server name "` + strings.Repeat("a", 64) + `": must be a DNS name in lower case without wildcard`,
		},
		"no address": {
			names:   Names{IPs: make([]net.IP, 1)},
			wantErr: "server address of 0 bytes: must be an IP address of 4 or 16 bytes",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got string
			if err := tc.names.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
