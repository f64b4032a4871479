package version

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli/output"
)

func TestCompatibility(t *testing.T) {
	tests := map[string]struct{ got, want string }{
		"the oldest version":        {supported("v1.34.0"), "Kubernetes 1.34 is supported"},
		"the latest version":        {supported("v1.37.2+k3s1"), "Kubernetes 1.37 is supported"},
		"a provider":                {supported("v1.36.3-gke.1"), "Kubernetes 1.36 is supported"},
		"an older version":          {supported("v1.33.9"), "Kubernetes 1.33 is not supported: Ostiary evaluates like 1.34; upgrade the cluster"},
		"a later version":           {supported("v1.38.0"), "Kubernetes 1.38 is later than this program: it evaluates like 1.37; look for a later version of Ostiary"},
		"no version":                {supported("x\x1b"), `the API server reports the version "x\x1b", which is none of Kubernetes`},
		"equal versions":            {equal("v1.2.3", "1.2.3"), "kubectl-ostiary and Ostiary have the same version"},
		"different versions":        {equal("v1.2.3", "v1.3.0"), "kubectl-ostiary v1.2.3 and Ostiary v1.3.0 differ: they can decide differently; use equal versions"},
		"an image without a tag":    {equal("v1.2.3", ""), "the version of Ostiary in the cluster is not known, because its image has no tag"},
		"a version between release": {equal("v1.2.3-4-gabc", "v1.2.3"), "kubectl-ostiary v1.2.3-4-gabc and Ostiary v1.2.3 differ: they can decide differently; use equal versions"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.got != tt.want {
				t.Errorf("got  %s\nwant %s", tt.got, tt.want)
			}
		})
	}
}

// Without a cluster, the command prints the version of the program and succeeds.
func TestWithoutCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for name, tt := range map[string]struct {
		args []string
		want string // the beginning of stderr
	}{
		"no kubeconfig":           {want: "not shown: the versions in the cluster: reading the kubeconfig: it names no cluster: set KUBECONFIG, or name a file with --kubeconfig\n"},
		"a server that is absent": {args: []string{"--server", "https://127.0.0.1:1"}, want: "not shown: the versions in the cluster: reading the version of the API server: "},
		"--client":                {args: []string{"--client"}},
	} {
		t.Run(name, func(t *testing.T) {
			streams, _, out, errOut := genericiooptions.NewTestIOStreams()
			c := NewCommand(&output.Options{IOStreams: streams, Version: "v1.2.3"})
			c.SetArgs(tt.args)
			if err := c.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(errOut.String(), tt.want) || (errOut.Len() > 0) != (tt.want != "") {
				t.Errorf("stderr: got %q, want %q", errOut, tt.want)
			}
			if lines := strings.Split(out.String(), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], "kubectl-ostiary   v1.2.3    ") {
				t.Errorf("got\n%s", out)
			}
		})
	}
}
