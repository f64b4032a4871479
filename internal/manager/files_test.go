package manager

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	"github.com/ostiary/ostiary/internal/options"
)

func TestLimitConnections(t *testing.T) {
	for name, tc := range map[string]struct {
		chosen, files   int
		metrics, health string
		want            int
		wantError       string
		wantLog         bool
	}{
		"default":              {files: 20_000, want: 2000},
		"default, just enough": {files: 3728, want: 2000},
		"default, lowered":     {files: 3727, want: 1999, wantLog: true},
		"default, least":       {files: 1856, want: 128, wantLog: true},
		"default, too few": {
			files:     1855,
			wantError: "the process may open 1855 files at RLIMIT_NOFILE: raise it to at least 1856",
		},
		"chosen":      {chosen: 10_000, files: 20_000, want: 10_000},
		"chosen, few": {chosen: 2, files: 1730, want: 2},
		"chosen, too many": {
			chosen: 50_000,
			files:  20_000,
			wantError: "50000 connections need 51728 open files, but the process may open 20000 at --max-connections: give at " +
				"most 18272, or raise RLIMIT_NOFILE",
		},
		"chosen, too few files": {
			chosen:    2,
			files:     1024,
			wantError: "the process may open 1024 files at RLIMIT_NOFILE: raise it to at least 1856",
		},
		"only the webhook": {files: 1024, metrics: "0", health: "0", want: 448, wantLog: true},
	} {
		t.Run(name, func(t *testing.T) {
			var logged strings.Builder
			log := funcr.New(func(_, line string) { logged.WriteString(line) }, funcr.Options{})
			o := options.Options{MetricsAddress: tc.metrics, HealthAddress: tc.health, Load: options.Load{Connections: tc.chosen}}
			got, err := limitConnections(o, tc.files, log)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if got != tc.want || text != tc.wantError {
				t.Errorf("got %d, error %q; want %d, %q", got, text, tc.want, tc.wantError)
			}
			if lowered := strings.Contains(logged.String(), "raise RLIMIT_NOFILE"); lowered != tc.wantLog {
				t.Errorf("log %q; want a line: %t", logged.String(), tc.wantLog)
			}
		})
	}
	if got := maxFiles(); got < 64 {
		t.Errorf("this process may open %d files", got)
	}
}
