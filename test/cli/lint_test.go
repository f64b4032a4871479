package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/ostiary/ostiary/internal/cli/lint"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// Each field that an API server rejects is an error of lint, and no other one.
func TestLintRejectsWhatAPIServersReject(t *testing.T) {
	cp := cptest.Run(t, controlplane.Options{NoControllerManager: true})
	p := planter{client: dynamic.NewForConfigOrDie(cp.Config()), variables: strings.NewReplacer()}
	p.plant(t, p.read(t, "../../config/crd/bases/admission.ostiary.dev_webhookpolicies.yaml"))
	const head = "apiVersion: admission.ostiary.dev/v1alpha1\nkind: WebhookPolicy\nmetadata: {name: NAME}\nspec:\n"
	const rules = "  matchConstraints:\n    resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]\n"
	const validation = "  validations: [{expression: 'true'}]\n"
	for name, content := range map[string]string{
		"a good policy":                head + rules + validation,
		"an invalid name":              strings.Replace(head, "NAME", "A_b", 1) + rules + validation,
		"no rules":                     head + validation,
		"a timeout out of range":       head + rules + validation + "  timeoutSeconds: 31\n",
		"an unknown operation":         strings.Replace(head+rules+validation, "CREATE", "READ", 1),
		"an unknown failurePolicy":     head + rules + validation + "  failurePolicy: Maybe\n",
		"a binding with Deny and Warn": head + rules + validation + "  bindings: [{name: a, validationActions: [Deny, Warn]}]\n",
		"a binding without a name":     head + rules + validation + "  bindings: [{}]\n",
		"bindings with equal names":    head + rules + validation + "  bindings: [{name: a}, {name: a}]\n",
		"a param without an action":    head + rules + validation + "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  bindings: [{name: a, paramRef: {name: b}}]\n",
		"a message of two lines":       head + rules + "  validations: [{expression: 'true', message: \"a\\nb\"}]\n",
		"two problems":                 head + rules + validation + "  timeoutSeconds: 31\n  order: 100000\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "policy.yaml")
			must(t, os.WriteFile(file, []byte(strings.Replace(content, "NAME", "a", 1)), 0o600))
			u := p.read(t, file)[0]
			var want []string
			NewWithT(t).Eventually(func() error { // until the API server serves the kind
				_, err := p.resource(u).Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				var status *apierrors.StatusError
				if errors.As(err, &status) && apierrors.IsInvalid(err) {
					want = nil
					for _, cause := range status.ErrStatus.Details.Causes {
						if cause.Field != "<nil>" { // rules were not checked
							want = append(want, cause.Field)
						}
					}
					return nil
				}
				return err
			}).WithTimeout(time.Minute).Should(Succeed())
			objects, err := load.Objects(t.Context(), []string{file}, load.Options{})
			must(t, err)
			findings, _, err := lint.Check(t.Context(), objects, nil, policy.LatestEngine, time.Now())
			must(t, err)
			var got []string
			for _, f := range findings {
				t.Logf("%s %s: %s", f.Rule, f.Field, f.Message)
				if f.Rule == "schema" {
					got = append(got, f.Field)
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(slices.Compact(want), slices.Compact(got)); diff != "" {
				t.Errorf("fields (-API server +lint):\n%s", diff)
			}
		})
	}
}
