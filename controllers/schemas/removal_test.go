package schemas

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// lines are those of a log. They are safe for concurrent use.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

// with returns the lines that contain a text.
func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// errorsOfKubernetes returns the errors that Kubernetes' own packages log until the test ends.
func errorsOfKubernetes(t *testing.T) *lines {
	t.Helper()
	var logged lines
	before := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(_ context.Context, err error, message string, _ ...any) {
		if err != nil {
			message += " " + err.Error()
		}
		logged.add(message)
	}}
	t.Cleanup(func() { utilruntime.ErrorHandlers = before })
	return &logged
}

// TestKindIsRemoved checks that the removal of a mutated kind is logged once and stays in the status of its policies, and
// that the schema of the kind is read again when it is installed again.
func TestKindIsRemoved(t *testing.T) {
	const group, groupVersion = "removed.schemas.test", "removed.schemas.test/v1"
	const removed, again = "publishes the schemas of a group version no longer", "publishes the schemas of a group version again"
	failed := errorsOfKubernetes(t)
	var logged lines
	c, _ := startWith(t, funcr.New(func(_, args string) { logged.add(args) }, funcr.Options{}))
	g := NewWithT(t)
	client := dynamic.NewForConfigOrDie(apiServer).Resource(crds)
	install := func(field string) {
		t.Helper()
		g.Eventually(func() error {
			_, err := client.Create(t.Context(), crd(group, field), metav1.CreateOptions{})
			return err
		}).WithTimeout(eventually).Should(Succeed())
	}
	install("before")
	p := mutating(group, "v1", "things", apply)
	c.Want([]*v1alpha1.WebhookPolicy{p})
	g.Eventually(fits(t, c, p, "before")).WithTimeout(eventually).WithPolling(pause).Should(BeTrue())

	if err := client.Delete(t.Context(), crd(group, "").GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.Eventually(func() []string { return logged.with(removed) }).WithTimeout(eventually).ShouldNot(BeEmpty())
	g.Eventually(missing(c, p)).WithTimeout(eventually).WithPolling(pause).Should(HavePrefix("the API server has none of the resources"))
	for range 5 { // reads, of which there is one every few seconds
		before := c.attemptsSoFar()
		c.Want([]*v1alpha1.WebhookPolicy{p})
		g.Eventually(c.attemptsSoFar).WithTimeout(eventually).WithPolling(pause).Should(BeNumerically(">", before))
	}
	if got := logged.with(groupVersion); len(got) != 1 {
		t.Errorf("the removal is logged as %q, want one line", got)
	}
	if got := failed.with(group); len(got) > 0 {
		t.Errorf("errors about the schema: %q", got)
	}

	install("after")
	g.Eventually(missing(c, p)).WithTimeout(eventually).WithPolling(pause).Should(BeEmpty())
	g.Eventually(fits(t, c, p, "after")).WithTimeout(eventually).WithPolling(pause).Should(BeTrue())
	g.Eventually(func() []string { return logged.with(again) }).WithTimeout(eventually).Should(HaveLen(1))
}

func (c *Converters) attemptsSoFar() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attempts
}
