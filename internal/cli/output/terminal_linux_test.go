package output

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/test/clitest/pty"
)

func TestColored(t *testing.T) {
	tests := map[string]struct {
		environment map[string]string
		want        bool
	}{
		"a terminal":         {want: true},
		"NO_COLOR":           {environment: map[string]string{"NO_COLOR": "1"}},
		"a terminal for ink": {environment: map[string]string{"TERM": "dumb"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TERM", "xterm")
			t.Setenv("NO_COLOR", "")
			for key, value := range tt.environment {
				t.Setenv(key, value)
			}
			file := pty.Open(t, 80, 24).File
			if got := Colored(file).to != nil; got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Run("on a terminal", func(t *testing.T) {
		g := NewWithT(t)
		seen := pty.Open(t, 80, 24)
		o := &Options{IOStreams: genericiooptions.IOStreams{ErrOut: seen.File}}
		p := o.StartProgress("reading")
		g.Eventually(seen.String).WithTimeout(time.Minute).Should(And(ContainSubstring("| reading"), ContainSubstring("/ reading")))
		p.Begin("evaluating", 200)
		p.Add(50)
		g.Eventually(seen.String).WithTimeout(time.Minute).Should(ContainSubstring("[======                  ]  25% evaluating"))
		if _, err := fmt.Fprintln(p, "a note"); err != nil {
			t.Error(err)
		}
		g.Eventually(seen.String).WithTimeout(time.Minute).Should(MatchRegexp(`a note\r\n(\r\x1b\[K)?\[======`))
		p.Stop()
		p.Stop()
		g.Eventually(seen.String).WithTimeout(time.Minute).Should(HaveSuffix("evaluating" + controlOf(controlErase)))
		if strings.Contains(seen.String(), "\x1b[3") {
			t.Errorf("there are colors in %q", seen.String())
		}
	})
	t.Run("of short work", func(t *testing.T) {
		seen := pty.Open(t, 80, 24)
		o := &Options{IOStreams: genericiooptions.IOStreams{ErrOut: seen.File}}
		o.StartProgress("reading").Stop()
		if got := seen.String(); got != "" {
			t.Errorf("got %q, want nothing", got)
		}
	})
	for name, dumb := range map[string]bool{"in a file": false, "on a terminal without control": true} {
		t.Run(name, func(t *testing.T) {
			seen := pty.Open(t, 80, 24)
			o := &Options{IOStreams: genericiooptions.IOStreams{ErrOut: seen.File}}
			var written bytes.Buffer
			if dumb {
				t.Setenv("TERM", "dumb")
			} else {
				o.ErrOut = &written
			}
			p := o.StartProgress("reading")
			time.Sleep(progressDelay + 2*progressInterval) // nothing happens, so there is nothing to wait for
			p.Stop()
			if got := seen.String() + written.String(); got != "" {
				t.Errorf("got %q, want nothing", got)
			}
		})
	}
}
