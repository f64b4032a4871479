package command

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli/output"
)

const examples = "../../testdata/examples"

func TestReplay(t *testing.T) {
	const denied = "POLICY               DECISION   COUNT   USER   NAMESPACE   RESOURCE   EXAMPLE             MESSAGE\n" +
		"require-team-label   deny       1       ann    shop        pods       audit.log:1 web-0   WebhookPolicy " +
		"'require-team-label' denied request: add the label team, with the name of the team that looks after this workload\n"
	const replayed = "2 events, 2 requests replayed\n"
	log, err := os.ReadFile(examples + "/audit.log")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args, stdin                  string
		wantOut, wantErrOut, wantErr string
		wantStatus                   int
	}{
		"a denial": {
			args:       "--audit-log audit.log -f policy.yaml",
			wantOut:    denied,
			wantErrOut: replayed,
			wantErr:    "1 denial, 0 errors",
			wantStatus: output.StatusFindings,
		},
		"stdin": {
			args:       "--audit-log - -f policy.yaml",
			stdin:      string(log),
			wantOut:    strings.Replace(denied, "audit.log:1 web-0   WebhookPolicy", "-:1 web-0   WebhookPolicy", 1),
			wantErrOut: replayed,
			wantErr:    "1 denial, 0 errors",
			wantStatus: output.StatusFindings,
		},
		"no denial": {
			args:       "--audit-log audit.log -f old-policy.yaml",
			wantOut:    "No request would have been denied, changed or warned about\n",
			wantErrOut: replayed,
		},
		"a difference": {
			args:       "--audit-log audit.log -f policy.yaml --compare old-policy.yaml",
			wantOut:    strings.NewReplacer("DECISION", "BEFORE   DECISION", "deny  ", "allow    deny  ").Replace(denied),
			wantErrOut: replayed,
			wantErr:    "the policies decide differently",
			wantStatus: output.StatusFindings,
		},
		"no difference": {
			args:       "--audit-log audit.log -f policy.yaml --compare policy.yaml",
			wantOut:    "The policies decide equally\n",
			wantErrOut: replayed,
		},
		"patches, partly": {
			args: "--audit-log - -f policy.yaml",
			stdin: strings.NewReplacer(`"verb":"create"`, `"verb":"patch"`, `"code":201`,
				`"code":200`).Replace(string(log))[:1100],
			wantOut: "No request would have been denied, changed or warned about\n",
			wantErrOut: "1 event, 0 requests replayed\n1 not replayed: patches without their result: record them with the " +
				"audit level RequestResponse\nthe last line of a log is incomplete, and was left out\n",
		},
		"a summary": {
			args: "--audit-log - -f policy.yaml --summary", stdin: string(log) + strings.ReplaceAll(string(log), `"ann"`, `"bob"`),
			wantOut: strings.NewReplacer("COUNT   USER   NAMESPACE   RESOURCE", "COUNT   NAMESPACE",
				"1       ann    shop        pods", "2       shop",
				"audit.log:1", "-:1").Replace(denied),
			wantErrOut: "4 events, 4 requests replayed\n", wantErr: "2 denials, 0 errors", wantStatus: output.StatusFindings,
		},
		"a broken line": {
			args:       "--audit-log - -f policy.yaml",
			stdin:      "{\n" + string(log) + "text\n",
			wantOut:    strings.Replace(denied, "audit.log:1 web-0   WebhookPolicy", "-:2 web-0   WebhookPolicy", 1),
			wantErrOut: replayed + "2 lines are no audit events and were left out, the first is -:1:1: not an audit event: ",
			wantErr:    "1 denial, 0 errors",
			wantStatus: output.StatusFindings,
		},
		"no policy": {
			args:       "--audit-log audit.log -f pods.yaml",
			wantErr:    "pods.yaml: there is no WebhookPolicy: name its file with -f",
			wantStatus: output.StatusError,
		},
		"no log": {
			args:       "--audit-log gone.log -f policy.yaml",
			wantErr:    "reading an audit log: stat gone.log: no such file or directory",
			wantStatus: output.StatusError,
		},
		"another file": {
			args:       "--audit-log policy.yaml -f policy.yaml",
			wantErr:    "policy.yaml:1:1: not an audit event: ",
			wantStatus: output.StatusError,
		},
		"stdin twice": {
			args:       "--audit-log - -f -",
			wantErr:    "stdin is either an audit log or a file with policies: name the other one",
			wantStatus: output.StatusError,
		},
		"an invalid flag": {
			args: "-f policy.yaml", wantErr: "--audit-log is missing: use replay --audit-log FILE... -f FILE...", wantStatus: output.StatusError,
		},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			if err := os.CopyFS(directory, os.DirFS(examples)); err != nil {
				t.Fatal(err)
			}
			t.Chdir(directory)
			streams, in, out, errOut := genericiooptions.NewTestIOStreams()
			in.WriteString(tc.stdin)
			c := NewCommand(&output.Options{IOStreams: streams})
			c.SilenceErrors, c.SilenceUsage = true, true
			c.SetArgs(strings.Fields(tc.args))
			err := c.ExecuteContext(t.Context())
			if got := output.Status(err); got != tc.wantStatus {
				t.Errorf("status %d, want %d", got, tc.wantStatus)
			}
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.HasPrefix(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want %q", err, tc.wantErr)
			}
			if diff := cmp.Diff(columns(tc.wantOut), columns(out.String())); diff != "" {
				t.Errorf("stdout (-want +got):\n%s", diff)
			}
			said := errOut.String()
			if strings.HasSuffix(tc.wantErrOut, ": ") { // the rest is of the decoder
				said = said[:min(len(said), len(tc.wantErrOut))]
			}
			if diff := cmp.Diff(tc.wantErrOut, said); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
		})
	}
}

// columns makes the widths of columns equal.
func columns(table string) string {
	var out []string
	for line := range strings.Lines(table) {
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(out, "\n")
}
