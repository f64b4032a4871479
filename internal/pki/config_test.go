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
			Config{CALifetime: 26280 * time.Hour, CARenewAfter: 13140 * time.Hour, LeafLifetime: 2160 * time.Hour, LeafRenewAfter: 1440 * time.Hour, Overlap: 15 * time.Minute, Backdate: time.Hour},
		},
		"lifetimes given": {
			Config{CALifetime: 10 * time.Hour, LeafLifetime: 3 * time.Hour},
			Config{CALifetime: 10 * time.Hour, CARenewAfter: 5 * time.Hour, LeafLifetime: 3 * time.Hour, LeafRenewAfter: 2 * time.Hour, Overlap: 15 * time.Minute, Backdate: time.Hour},
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
		"negative CA lifetime":  {Config{CALifetime: -time.Hour, CARenewAfter: time.Hour}, "CALifetime is -1h0m0s: must exceed the renewal age 1h0m0s by at least 5s"},
		"CA renewed too late":   {Config{CALifetime: time.Hour, CARenewAfter: time.Hour}, "CALifetime is 1h0m0s: must exceed the renewal age 1h0m0s by at least 5s"},
		"leaf renewed at once":  {Config{LeafRenewAfter: time.Second}, "LeafRenewAfter is 1s: must be at least 5s"},
		"leaf renewed too late": {Config{LeafLifetime: time.Hour, LeafRenewAfter: 2 * time.Hour}, "LeafLifetime is 1h0m0s: must exceed the renewal age 2h0m0s by at least 5s"},
		"negative overlap":      {Config{Overlap: -1}, "Overlap is -1ns: must be at least 5s"},
		"leaf longer than CA":   {Config{CALifetime: 100 * day}, "LeafLifetime is 2160h0m0s: must be at most 1200h0m0s, the remaining lifetime of a CA when it is replaced"},
		"negative backdate":     {Config{Backdate: -time.Second}, "Backdate is -1s: must be between 0 and 24h0m0s"},
		"backdate too long":     {Config{Backdate: 25 * time.Hour}, "Backdate is 25h0m0s: must be between 0 and 24h0m0s"},
		"overlap too long":      {Config{Overlap: 20000 * time.Hour}, "Overlap is 20000h0m0s: must be shorter than CARenewAfter, 13140h0m0s"},
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
		"good":        {names, ""},
		"none":        {Names{}, "no server name: give at least one DNS name or IP address"},
		"too many":    {Names{DNS: strings.Split(strings.Repeat("a ", 32)+"a", " ")}, "33 server names: give at most 32"},
		"upper case":  {Names{DNS: []string{"Ostiary"}}, `server name "Ostiary": must be a DNS name in lower case without wildcard`},
		"wildcard":    {Names{DNS: []string{"*.svc"}}, `server name "*.svc": must be a DNS name in lower case without wildcard`},
		"empty label": {Names{DNS: []string{"a..b"}}, `server name "a..b": must be a DNS name in lower case without wildcard`},
		"hyphen":      {Names{DNS: []string{"a-"}}, `server name "a-": must be a DNS name in lower case without wildcard`},
		"long label":  {Names{DNS: []string{strings.Repeat("a", 64)}}, `server name "` + strings.Repeat("a", 64) + `": must be a DNS name in lower case without wildcard`},
		"no address":  {Names{IPs: make([]net.IP, 1)}, "server address of 0 bytes: must be an IP address of 4 or 16 bytes"},
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
