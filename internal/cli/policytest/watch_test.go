package policytest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// written is a buffer that a command writes while a test reads it.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// String returns what was written.
func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func TestWatch(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	policy := func(expression string) string {
		return fmt.Sprintf(rules, "p", "  validations: [{expression: '"+expression+"'}]")
	}
	write("policy.txt", policy("true"))
	write("test.yaml", strings.Replace(fmt.Sprintf(head, "p"), "cases:", "files: [policy.txt]\ncases:", 1)+"- {name: c, object: "+pod+", expect: {decision: Deny}}\n")
	out := &written{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		c := NewCommand(&output.Options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}})
		c.SetArgs([]string{".", "--watch"})
		done <- c.ExecuteContext(ctx)
	}()
	g := NewWithT(t)
	g.Eventually(out.String).WithTimeout(time.Minute).Should(ContainSubstring("0 cases passed, 1 failed"))
	write("policy.txt", policy("false"))
	g.Eventually(out.String).WithTimeout(time.Minute).Should(ContainSubstring("PASS 1 case"))
	cancel()
	if err := <-done; err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}
