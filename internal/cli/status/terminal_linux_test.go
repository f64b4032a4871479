package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/test/clitest/pty"
)

// A terminal shows the denials between updates, and a file does not.
func TestTimeLines(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	var h history
	var s *Status
	for i, denied := range []int{0, 4, 4, 12, 3, 4} {
		s = statusOf(dump(t), &metrics{denied: map[string]int{"require-team-label": denied}}, nil, now)
		h.add(s, &metrics{denied: map[string]int{"require-team-label": denied}}, now.Add(time.Duration(i)*time.Second))
	}
	want := map[uint16]string{
		80: `Ostiary in ostiary-system: 1 replica, leader ostiary-5d9f-abcde

POLICY               ACTIONS   READY   REASON           FAILURE-POLICY   DENIED
allowed-teams        Deny      False   ParamsNotReady   Fail             0
  DENIED/MIN: 0.0   RECENT: ▁▁▁▁▁   AGE: 24h
require-team-label   Deny      True    Enforced         Fail             4
  DENIED/MIN: 48.0   RECENT: ▅▁█?▂   AGE: 31d

allowed-teams: the API server has no kind Teams in example.com/v1
`,
		160: `Ostiary in ostiary-system: 1 replica, leader ostiary-5d9f-abcde

POLICY               ACTIONS   READY   REASON           FAILURE-POLICY   DENIED   DENIED/MIN   RECENT   AGE
allowed-teams        Deny      False   ParamsNotReady   Fail             0        0.0          ▁▁▁▁▁    24h
require-team-label   Deny      True    Enforced         Fail             4        48.0         ▅▁█?▂    31d

allowed-teams: the API server has no kind Teams in example.com/v1
`,
	}
	for columns, text := range want {
		terminal := pty.Open(t, columns, 24)
		if err := s.write(terminal.File, output.Colored(terminal.File), false, now); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(text, terminal.Close()); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", columns, diff)
		}
	}
	var file strings.Builder
	if err := s.write(&file, output.Style{}, false, now); err != nil || strings.Contains(file.String(), "RECENT") {
		t.Errorf("in a file: %v\n%s", err, file.String())
	}
}
