package suspend

import (
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// TestDurations: the command refuses a time that replicas would not honour, before it connects to a cluster.
func TestDurations(t *testing.T) {
	for name, tt := range map[string]struct{ lasts, want string }{
		"none":           {"0s", "--for is required"},
		"negative":       {"-1h", "--for is required"},
		"too long":       {"168h0m1s", "--for is longer than 168h0m0s: suspend the policy for that time, and for longer change its spec"},
		"the longest":    {"168h", "reading the kubeconfig"},
		"not a duration": {"7d", `unknown unit "d"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", "")
			c := NewCommand(&output.Options{})
			c.SilenceErrors, c.SilenceUsage = true, true
			c.SetArgs([]string{"p", "--for", tt.lasts, "--kubeconfig", "/does/not/exist"})
			if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
