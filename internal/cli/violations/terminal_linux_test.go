package violations

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ostiary/ostiary/test/clitest"
	"github.com/ostiary/ostiary/test/clitest/pty"
)

// TestTerminal compares the table and the heat map at three widths, with and without colors.
func TestTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	now := time.Unix(1_000_000, 0)
	v := &Violations{Source: SourceReports}
	v.addAge(now.Add(-2 * time.Minute))
	for i, namespace := range []string{"shop", "payments", "analytics-of-the-north", "ops", "search", "mail"} {
		v.add(finding("require-team-label", namespace, "web", "Deployment/web-with-a-name-that-is-long", "UPDATE"))
		if i%2 == 0 {
			v.add(finding("restricted-privilege-escalation", namespace, "web", "", "CREATE"))
		}
	}
	v.miss("audit-privileged-pods",
		"the policy cannot be evaluated on stored objects: spec.matchConditions[0].expression reads request.userInfo", false)
	v.sort()
	var got strings.Builder
	for _, noColor := range []string{"1", ""} {
		t.Setenv("NO_COLOR", noColor)
		for _, columns := range []uint16{80, 110, 160} {
			terminal := pty.Open(t, columns, 24)
			if err := v.write(terminal.File, now, v.writeTable); err != nil {
				t.Fatal(err)
			}
			_, _ = fmt.Fprintln(terminal.File)
			if err := v.report(now).WriteHeatMap(terminal.File); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&got, "-- %d columns, NO_COLOR=%s --\n%s", columns, noColor, pty.NameColors(terminal.Close()))
		}
	}
	clitest.Compare(t, "testdata/terminal.txt", got.String())
}
