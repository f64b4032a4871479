package chaos

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	authorPlace  = "chaos-author"
	authorUser   = "eve"
	authorPrefix = "author-"
	// authorAnnotation is a policy whose error has no violation: it is that of an audit
	// annotation, which only the API server gets.
	authorAnnotation = "author-error-annotation"
)

// attackAuthor has an author, who may write policies and read no Secret, bring the data of
// other users' Secrets and ConfigMaps into messages and errors of policies. The data may
// reach only the client of a request: no Event, line of a log, metric, status,
// report or Lease may have it.
func attackAuthor(r *run) {
	r.limitReplicas()
	canary := "canary" + rand.Text()
	r.applyAuthorPolicies(canary)
	defer r.deletePolicies(authorPrefix)
	mark := time.Now()
	requests := 0
	for round := range r.size.of(1, 20) {
		requests += r.writeSecrets(canary, round)
	}
	r.awaitViolations()
	pause(r.T, 5*time.Second) // for Events and statuses to be written
	places := r.readAsOthers()
	size := 0
	for name, text := range places {
		size += len(text)
		for _, line := range linesWith(text, canary) {
			r.problem("%s has data of a Secret or ConfigMap", name)
			r.evidence = append(r.evidence, fmt.Sprintf("%s: %.400s", name, line))
			break // one of each place is enough
		}
	}
	r.note("%d requests, %d KiB of Events, logs, metrics, statuses and reports searched, p99 %s meanwhile",
		requests, size>>10, r.load.p99Since(mark).Round(time.Millisecond))
	r.weighReplicas(memoryLimit)
}

// applyAuthorPolicies applies them as their author, and waits until each is Ready and one
// of them denies.
func (r *run) applyAuthorPolicies(canary string) {
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: authorPlace}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "chaos-author"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "webhookpolicy-author"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: authorUser}},
		},
	} {
		must(r.T, client.IgnoreAlreadyExists(r.admin().Create(r.Context(), o)))
	}
	if err := r.kubectl(r.Context(), "--as", authorUser, "-n", authorPlace, "get", "secrets"); err == nil {
		r.problem("the author can read Secrets without an attack")
	}
	must(r.T, r.kubectl(r.Context(), "--as", authorUser, "apply", "-f", "testdata/attack/author.yaml"))
	await(r.T, "the policies of the author", func() error {
		var list v1alpha1.WebhookPolicyList
		if err := r.admin().List(r.Context(), &list); err != nil {
			return err
		}
		for i := range list.Items {
			if err := isReady(&list.Items[i]); err != nil && strings.HasPrefix(list.Items[i].Name, authorPrefix) {
				return err
			}
		}
		err := r.admin().Create(r.Context(), secretWith("probe", canary, "denied"), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "denied the request") {
			return fmt.Errorf("a Secret is not denied: %w", err)
		}
		return nil
	})
}

func secretWith(name, canary, label string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: authorPlace, Name: name, Labels: map[string]string{label: ""}},
		StringData: map[string]string{"x": canary},
	}
}

// writeSecrets creates, changes and deletes a Secret and a ConfigMap as their owner does,
// with labels by which policies allow or deny them. It returns the number of requests.
func (r *run) writeSecrets(canary string, round int) int {
	requests := 0
	for _, label := range []string{"allowed", "denied", "closed"} {
		name := fmt.Sprintf("%s-%d", label, round)
		settings := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: authorPlace, Name: name, Labels: map[string]string{label: ""}},
			Data:       map[string]string{"x": canary},
		}
		for _, o := range []client.Object{secretWith(name, canary, label), settings} {
			err := r.admin().Create(r.Context(), o)
			requests++
			if label != "allowed" {
				if err == nil {
					r.problem("a %T with the label %s is allowed", o, label)
				}
				continue
			}
			must(r.T, err)
			o.SetAnnotations(map[string]string{"changed": "yes"})
			must(r.T, r.admin().Update(r.Context(), o))
			must(r.T, r.admin().Delete(r.Context(), o))
			requests += 2
		}
	}
	return requests
}

// awaitViolations waits until the logs have a violation of each policy, and a namespace
// has an Event: what nothing reports cannot show that values are left out.
func (r *run) awaitViolations() {
	var list v1alpha1.WebhookPolicyList
	must(r.T, r.admin().List(r.Context(), &list))
	await(r.T, "reports of violations", func() error {
		var logs strings.Builder
		for _, m := range r.all() {
			logs.WriteString(m.log())
		}
		lines := linesWith(logs.String(), `"log":"violation"`)
		for i := range list.Items {
			name := list.Items[i].Name
			quoted := `"policy":"` + name + `"`
			if strings.HasPrefix(name, authorPrefix) && name != authorAnnotation && !slices.ContainsFunc(lines,
				func(line string) bool { return strings.Contains(line, quoted) }) {
				return fmt.Errorf("the logs have no violation of %s", name)
			}
		}
		var events corev1.EventList
		if err := r.admin().List(r.Context(), &events, client.InNamespace(authorPlace)); err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return errors.New("there is no Event")
		}
		return nil
	})
}

// readAsOthers returns what other users can read, by its place.
func (r *run) readAsOthers() map[string]string {
	places := map[string]string{}
	for _, kind := range []string{
		"events", "events.events.k8s.io", "webhookpolicies", "leases", "reports.openreports.io",
		"clusterreports.openreports.io", "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
	} {
		places[kind] = r.printAll(r.Context(), kind)
	}
	for _, m := range r.all() {
		places["the log of "+m.name] = m.log()
		metrics, err := m.scrape(r.Context())
		must(r.T, err)
		places["the metrics of "+m.name] = metrics
	}
	return places
}

func (r *run) printAll(ctx context.Context, kind string) string {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, r.plane.Kubectl(), "get", kind, "-A", "-o", "json")
	cmd.Env = []string{"HOME=" + r.dir, "KUBECONFIG=" + r.plane.Kubeconfig()}
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		r.Fatalf("kubectl get %s: %v: %s", kind, err, &errs)
	}
	return out.String()
}

// linesWith returns the lines that have a text, as it is or encoded as in a Secret.
func linesWith(text, what string) (out []string) {
	encoded := base64.StdEncoding.EncodeToString([]byte(what))
	for line := range strings.Lines(text) {
		if strings.Contains(line, what) || strings.Contains(line, encoded) {
			out = append(out, line)
		}
	}
	return out
}
