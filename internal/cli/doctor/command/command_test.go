package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli/output"
)

const dump = `apiVersion: v1
kind: List
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  metadata: {name: images}
  webhooks:
  - name: images.example.com
    clientConfig: {url: "https://images.example.com"}
    rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
    timeoutSeconds: TIMEOUT
    failurePolicy: Ignore
    sideEffects: None
    admissionReviewVersions: [v1]
`

func TestDoctor(t *testing.T) {
	long := strings.Replace(dump, "TIMEOUT", "15", 1)
	const message = "requests wait up to 15 seconds while the webhook does not answer, longer than many clients do"
	const link = "https://github.com/ostiary/ostiary/blob/main/docs/cli/doctor.md#timeout-long"
	for name, tc := range map[string]struct {
		content, wantOut, wantErr string
		args                      []string
		wantStatus                int
	}{
		"no findings": {content: strings.Replace(dump, "TIMEOUT", "5", 1), wantOut: "No findings\n"},
		"a warning": {
			content: long, wantStatus: output.StatusFindings, wantErr: "0 errors, 1 warning",
			wantOut: "warning timeout-long ValidatingWebhookConfiguration/images webhooks[0].timeoutSeconds\n  " + message + "\n  Fix: set timeoutSeconds to 10 or less\n  " + link + "\n",
		},
		"as YAML": {
			content: long, args: []string{"-o", "yaml"}, wantStatus: output.StatusFindings, wantErr: "0 errors, 1 warning",
			wantOut: `findings:
- check: timeout-long
  fix: set timeoutSeconds to 10 or less
  link: ` + link + `
  message: requests wait up to 15 seconds while the webhook does not answer, longer
    than many clients do
  object:
    kind: ValidatingWebhookConfiguration
    name: images
  path: webhooks[0].timeoutSeconds
  severity: warning
  webhook: images.example.com
`,
		},
		"no findings as JSON":     {content: strings.Replace(dump, "TIMEOUT", "5", 1), args: []string{"-o", "json"}, wantOut: "{\n  \"findings\": []\n}\n"},
		"no configuration":        {content: "{apiVersion: v1, kind: Namespace}", wantStatus: output.StatusError, wantErr: "the dump contains no webhook configuration"},
		"a field of another type": {content: strings.Replace(dump, "TIMEOUT", "soon", 1), wantStatus: output.StatusError, wantErr: "dump.yaml:4:3: reading a ValidatingWebhookConfiguration: json: cannot unmarshal string into Go struct field ValidatingWebhook.webhooks.timeoutSeconds of type int32"},
		"not YAML":                {content: "a: [", wantStatus: output.StatusError, wantErr: "dump.yaml:2:1: invalid YAML: did not find expected node content"},
		"an invalid version":      {content: long, args: []string{"--kubernetes-version", "new"}, wantStatus: output.StatusError, wantErr: `--kubernetes-version: could not parse "new" as version`},
		"a probe of a dump":       {content: long, args: []string{"--probe"}, wantStatus: output.StatusError, wantErr: "if any flags in the group [filename probe] are set none of the others can be; [filename probe] were all set"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile(filepath.Join(".", "dump.yaml"), []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			streams, _, out, _ := genericiooptions.NewTestIOStreams()
			c := NewCommand(&output.Options{IOStreams: streams})
			c.SilenceErrors, c.SilenceUsage = true, true
			c.SetArgs(append([]string{"-f", "dump.yaml"}, tc.args...))
			err := c.ExecuteContext(t.Context())
			if got := output.Status(err); got != tc.wantStatus {
				t.Errorf("status %d, want %d", got, tc.wantStatus)
			}
			gotErr := ""
			if err != nil {
				gotErr = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, gotErr); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantOut, out.String()); diff != "" {
				t.Errorf("stdout (-want +got):\n%s", diff)
			}
		})
	}
}
