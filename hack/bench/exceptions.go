package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/config/rbac"
	"github.com/ostiary/ostiary/test/bench"
)

const (
	// exceptionPolicies is the number of policies that exceptions are from. Those beyond a set match no request of the benchmark.
	exceptionPolicies = 1000
	// exceptionNamespaces is the number of namespaces that exceptions are in. The first is that of the requests.
	exceptionNamespaces = 10
	exceptionWorkers    = 16
)

// compareExceptions measures the CPU per request of one manager with and without exceptions in turn, of requests that pass and that are
// denied, and writes a line for each in the format of Go benchmarks.
func compareExceptions(ctx context.Context, o options, out io.Writer) (err error) {
	o.compare = nil
	w, err := newWorld(ctx, o, log.New(os.Stderr, "", log.Ltime))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	w.timeout = scaleWait
	if err := w.prepareExceptions(ctx); err != nil {
		return err
	}
	for _, set := range o.sets {
		if err := w.measureExceptions(ctx, set, out); err != nil {
			return fmt.Errorf("comparing exceptions with set %s: %w", set, err)
		}
	}
	return nil
}

// prepareExceptions creates the namespaces, and the admission policy without which no exception has an effect.
func (w *world) prepareExceptions(ctx context.Context) error {
	objects := make([]client.Object, 0, exceptionNamespaces+1)
	for i := 1; i < exceptionNamespaces; i++ {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: exceptionNamespace(i)}})
	}
	for document := range strings.SplitSeq(string(rbac.ExceptionPolicy), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return fmt.Errorf("reading the policy that guards exceptions: %w", err)
		}
		objects = append(objects, object)
	}
	for _, object := range objects {
		if err := w.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	return nil
}

func exceptionNamespace(number int) string {
	if number == 0 {
		return bench.ReviewNamespace
	}
	return fmt.Sprintf("exceptions-%d", number)
}

// measureExceptions applies the policies of a set, and others up to exceptionPolicies, all of which permit exceptions.
func (w *world) measureExceptions(ctx context.Context, set string, out io.Writer) error {
	policies, err := bench.Policies(set)
	if err != nil {
		return err
	}
	policies = append(policies, bench.Many(exceptionPolicies-len(policies), scaleGroups, scaleNamespace)...)
	for _, p := range policies {
		p.Spec.Exceptions = &v1alpha1.Exceptions{}
	}
	w.log.Printf("Set %s: starting the manager and applying %d policies", set, len(policies))
	if err := errors.Join(w.startManager(ctx), w.apply(ctx, policies)); err != nil {
		return err
	}
	for round := range w.options.rounds {
		for _, r := range inTurn(round, revision{name: "base"}, revision{name: "head"}) {
			w.log.Printf("Set %s, round %d of %d, %s", set, round+1, w.options.rounds, r.name)
			if err := w.setExceptions(ctx, policies, r.name == "head"); err != nil {
				return err
			}
			if err := w.measureWithExceptions(ctx, r.name, set, out); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	return errors.Join(w.deleteExceptions(ctx), w.clear(ctx))
}

// measureWithExceptions measures a new process, which is at rest.
func (w *world) measureWithExceptions(ctx context.Context, side, set string, out io.Writer) error {
	if err := w.startManager(ctx); err != nil {
		return err
	}
	err := errors.Join(w.awaitReady(ctx, exceptionPolicies), w.awaitChecked(ctx), w.awaitActive(ctx), w.awaitRest(ctx))
	if err != nil {
		return err
	}
	t, err := w.target(ctx)
	if err != nil {
		return err
	}
	for _, k := range []struct {
		pod, answer string
		limit       float64
	}{{bench.Good, "allowed", 1.05}, {bench.Bad, "denied", 1.10}} {
		f, err := w.loadOf(ctx, kind{ostiary, k.pod, maxCallers}, t)
		if err != nil {
			return err
		}
		w.log.Printf("Set %s, %s, %s: %.1f µs CPU a request", set, side, k.answer, micros(f.cpu))
		if _, err := fmt.Fprintf(out, "limit: %g\n%s", k.limit, benchmarkLine(side, set+"/"+k.answer, f)); err != nil {
			return fmt.Errorf("writing a result: %w", err)
		}
	}
	return nil
}

// setExceptions creates the exceptions, unless they exist, or deletes them.
func (w *world) setExceptions(ctx context.Context, policies []*v1alpha1.WebhookPolicy, exist bool) error {
	var list v1alpha1.WebhookPolicyExceptionList
	if err := w.client.List(ctx, &list, client.Limit(1)); err != nil {
		return fmt.Errorf("listing exceptions: %w", err)
	}
	switch isThere := len(list.Items) > 0; {
	case exist == isThere:
		return nil
	case !exist:
		return w.deleteExceptions(ctx)
	}
	errs := make([]error, w.options.exceptions)
	workqueue.ParallelizeUntil(ctx, exceptionWorkers, len(errs), func(i int) {
		errs[i] = w.client.Create(ctx, exceptionFrom(policies[i%len(policies)].Name, i))
	})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("creating exceptions: %w", err)
	}
	return context.Cause(ctx)
}

// exceptionFrom returns an exception from all validations of a policy, for a Pod that does not exist. The exceptions of a policy are spread
// over the namespaces.
func exceptionFrom(policy string, number int) *v1alpha1.WebhookPolicyException {
	x := &v1alpha1.WebhookPolicyException{}
	x.Namespace = exceptionNamespace(number / exceptionPolicies % exceptionNamespaces)
	x.Name = fmt.Sprintf("exception-%05d", number)
	x.Spec = v1alpha1.WebhookPolicyExceptionSpec{
		PolicyName: policy, Validations: []string{v1alpha1.AllValidations}, Reason: "benchmark",
		Match:          []v1alpha1.ExceptionMatch{{Resources: []string{"pods"}, Names: []string{fmt.Sprintf("pod-%05d", number)}}},
		ExpirationTime: &metav1.Time{Time: time.Now().Add(30 * 24 * time.Hour).Truncate(time.Second)},
	}
	return x
}

func (w *world) deleteExceptions(ctx context.Context) error {
	for i := range exceptionNamespaces {
		if err := w.client.DeleteAllOf(ctx, &v1alpha1.WebhookPolicyException{}, client.InNamespace(exceptionNamespace(i))); err != nil {
			return fmt.Errorf("deleting exceptions: %w", err)
		}
	}
	return nil
}

// awaitActive waits until the manager applies every exception, of which the last status tells.
func (w *world) awaitActive(ctx context.Context) error {
	return w.await(ctx, time.Second, "all exceptions are Active", func() (bool, error) {
		var list v1alpha1.WebhookPolicyExceptionList
		err := w.client.List(ctx, &list)
		return !slices.ContainsFunc(list.Items, func(x v1alpha1.WebhookPolicyException) bool {
			return !apimeta.IsStatusConditionTrue(x.Status.Conditions, v1alpha1.ConditionActive)
		}), err
	})
}
