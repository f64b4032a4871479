package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/manager"
)

// slotsPerTier, times three, is how many cases are enforced at a time.
const slotsPerTier = 16

// Suite is both engines, running.
type Suite struct {
	engines []*engine // native, ours
	planes  []*controlplane.ControlPlane
	manager *controlplane.Running
	slots   []slot
	minor   int // version of Kubernetes
	batches int
	cases   int
}

// Options say how to start a suite.
type Options struct {
	// Manager is the manager's program.
	Manager string
	// Root is the root of the repository; World the folder of the objects that
	// both clusters are filled with.
	Root, World string
	// Log gets a line per step.
	Log io.Writer
}

// Start starts two control planes and the manager, and fills both.
func Start(ctx context.Context, o Options) (_ *Suite, err error) {
	s := &Suite{planes: make([]*controlplane.ControlPlane, 2), slots: slots(slotsPerTier)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	group, starting := errgroup.WithContext(ctx)
	for i := range s.planes {
		group.Go(func() error {
			var err error
			s.planes[i], err = controlplane.Start(starting, controlplane.Options{
				NoControllerManager: true, Audit: true, AuditPolicy: auditPolicy, Log: o.Log,
				// Before 1.36, mutating policies are not on by default.
				APIServerArgs: []string{"--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config=admissionregistration.k8s.io/v1beta1=true"},
			})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, build := range []func(*side) *engine{newNative, newOstiary} {
		side, err := newSide([]string{"native", "ostiary"}[i], s.planes[i])
		if err != nil {
			return nil, err
		}
		s.engines = append(s.engines, build(side))
	}
	s.minor = s.engines[0].minor
	if err := s.fill(ctx, o); err != nil {
		return nil, err
	}
	s.manager, err = manager.Start(ctx, s.planes[1],
		manager.Options{Path: o.Manager, Args: []string{"--drain-max=1s", "--policy-webhook=false"}})
	return s, err
}

// Stop ends everything.
func (s *Suite) Stop() error {
	var errs []error
	if s.manager != nil {
		errs = append(errs, s.manager.Stop())
	}
	for _, p := range s.planes {
		if p != nil {
			errs = append(errs, p.Stop())
		}
	}
	return errors.Join(errs...)
}

// fill gives both clusters the same objects, and ours what the manager needs.
func (s *Suite) fill(ctx context.Context, o Options) error {
	stages, err := world(o.World, s.slots)
	if err != nil {
		return err
	}
	for _, e := range s.engines {
		for _, stage := range stages {
			if err := e.createAll(ctx, stage); err != nil {
				return err
			}
			if err := e.awaitServed(ctx, stage); err != nil {
				return err
			}
		}
	}
	ours := s.engines[1]
	for _, file := range []string{"config/crd/bases/*.yaml", "config/namespace/namespace.yaml", "config/rbac/exception_policy.yaml"} {
		files, err := filepath.Glob(filepath.Join(o.Root, file))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("finding %s in %s: %w", file, o.Root, errors.Join(err, os.ErrNotExist))
		}
		for _, f := range files {
			objects, err := readObjects(f, nil)
			if err != nil {
				return err
			}
			if err := errors.Join(ours.createAll(ctx, objects), ours.awaitServed(ctx, objects)); err != nil {
				return err
			}
		}
	}
	return nil
}

// world reads the files of a folder in the order of their names. Those whose
// name ends with -each.yaml are for every slot.
func world(dir string, slots []slot) ([][]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("finding the world's objects: %w", err)
	}
	var stages [][]*unstructured.Unstructured
	for _, file := range files {
		of := []slot{{}}
		if strings.HasSuffix(file, "-each.yaml") {
			of = slots
		}
		var stage []*unstructured.Unstructured
		for _, s := range of {
			objects, err := readObjects(file, s.expand)
			if err != nil {
				return nil, err
			}
			for _, o := range objects {
				if o.GetKind() == "Namespace" && s.tier != "" {
					o.SetLabels(map[string]string{"slot": s.label, "tier": s.tier})
				}
			}
			stage = append(stage, objects...)
		}
		stages = append(stages, stage)
	}
	return stages, nil
}

func readObjects(file string, expand func([]byte) []byte) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading objects: %w", err)
	}
	if expand != nil {
		content = expand(content)
	}
	var out []*unstructured.Unstructured
	for _, document := range strings.Split("\n"+string(content), "\n---\n") {
		o := &unstructured.Unstructured{}
		text, err := yaml.YAMLToJSON([]byte(document))
		if err == nil && string(text) == "null" {
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, &o.Object)
		}
		if err != nil {
			return nil, fmt.Errorf("reading objects of %s: %w", file, err)
		}
		out = append(out, o)
	}
	return out, nil
}

// Run puts cases to both engines, as many at a time as there are slots, and
// hands each verdict to report. A case that does not fit any more waits for the
// next batch.
func (s *Suite) Run(ctx context.Context, cases []Case, report func(*Verdict)) error {
	for len(cases) > 0 {
		var batch []*placed
		var rest []Case
		free := slices.Clone(s.slots)
		for _, c := range cases {
			i := slices.IndexFunc(free, func(f slot) bool { return f.tier == c.Tier })
			if i < 0 {
				rest = append(rest, c)
				continue
			}
			p, err := place(c, s.cases, free[i])
			if err != nil {
				return err
			}
			p.minor = s.minor
			free = slices.Delete(free, i, i+1)
			s.cases++
			batch = append(batch, p)
		}
		if err := s.runBatch(ctx, batch, report); err != nil {
			return err
		}
		cases = rest
	}
	return nil
}

// exchange is one request and what came back from each engine.
type exchange struct {
	of      *placed
	request Request
	replies [2]*reply
}

func (s *Suite) runBatch(ctx context.Context, batch []*placed, report func(*Verdict)) error {
	s.batches++
	var policies [2][]*v1alpha1.WebhookPolicy
	for _, p := range batch {
		policies[0] = append(policies[0], p.native...)
		policies[1] = append(policies[1], p.policies...)
	}
	var done [2]*installed
	group, installing := errgroup.WithContext(ctx)
	for i, e := range s.engines {
		group.Go(func() error {
			var err error
			done[i], err = e.install(installing, s.batches, policies[i])
			return err
		})
	}
	err := group.Wait()
	if err == nil {
		err = s.engines[1].createExceptions(ctx, batch, done[1])
	}
	if err != nil {
		return errors.Join(err, s.remove(context.WithoutCancel(ctx), done))
	}
	var exchanges []*exchange
	for _, p := range batch {
		if v := refusals(p, done); v != nil {
			report(v)
			continue
		}
		for _, r := range p.Requests {
			exchanges = append(exchanges, &exchange{of: p, request: r})
		}
	}
	err = s.exchange(ctx, exchanges)
	if err == nil {
		err = s.compareAll(ctx, exchanges, report)
	}
	return errors.Join(err, s.remove(ctx, done))
}

// remove takes out what a batch has put in.
func (s *Suite) remove(ctx context.Context, done [2]*installed) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for i, e := range s.engines {
		if done[i] != nil {
			group.Go(func() error { return e.deleteAll(ctx, done[i].objects) })
		}
	}
	return group.Wait()
}

// refusals is the verdict on a case whose policies an engine, or both, refused.
func refusals(p *placed, done [2]*installed) *Verdict {
	var said [2]string
	for i := range said {
		for _, policy := range p.policies {
			if why := done[i].refused[policy.Name]; why != "" && said[i] == "" {
				said[i] = why
			}
		}
	}
	if said[0] == "" && said[1] == "" && !p.Refused {
		return nil
	}
	v := &Verdict{Case: p, Native: &Answer{Message: said[0]}, Ours: &Answer{Message: said[1]}, Outcome: notInstalled}
	if v.Known = knownRefusals(p, said); len(v.Known) == 0 {
		v.Diff = compareRefusals(p, said)
	}
	return v
}

// knownRefusals are the known differences in what only one engine refuses.
func knownRefusals(p *placed, said [2]string) []string {
	refusing, message := "native", said[0]
	switch {
	case said[0] != "" && said[1] != "":
		return nil
	case said[0] == "":
		refusing, message = "ours", said[1]
	}
	var out []string
	for _, d := range differencesOf(p.minor) {
		if d.refusal != nil && d.refusal(p, refusing, message) {
			out = append(out, d.name)
		}
	}
	return out
}

func compareRefusals(p *placed, said [2]string) string {
	switch {
	case said[0] == "" && said[1] == "":
		return "both engines accept the policies, and should not"
	case said[0] == "":
		return "only Ostiary refuses the policies"
	case said[1] == "":
		return "only the native engine refuses the policies"
	case !p.Refused && !p.Generated:
		return "both engines refuse the policies, and should not"
	}
	return ""
}

// exchange sends the requests of one case in their order, and those of
// different cases side by side.
func (s *Suite) exchange(ctx context.Context, exchanges []*exchange) error {
	var byCase [][]*exchange
	for _, x := range exchanges {
		if n := len(byCase); n > 0 && byCase[n-1][0].of == x.of {
			byCase[n-1] = append(byCase[n-1], x)
			continue
		}
		byCase = append(byCase, []*exchange{x})
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, list := range byCase {
		group.Go(func() error {
			for _, x := range list {
				if err := s.send(ctx, x); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (s *Suite) send(ctx context.Context, x *exchange) error {
	var wait sync.WaitGroup
	var errs [2]error
	for i, e := range s.engines {
		wait.Go(func() { x.replies[i], errs[i] = e.send(ctx, x.request) })
	}
	wait.Wait()
	return errors.Join(errs[:]...)
}

func (s *Suite) compareAll(ctx context.Context, exchanges []*exchange, report func(*Verdict)) error {
	for i, e := range s.engines {
		var ids []string
		for _, x := range exchanges {
			if x.replies[i].code != 0 { // else no event is guaranteed
				ids = append(ids, x.replies[i].auditID)
			}
		}
		if err := e.audit.wait(ctx, ids); err != nil {
			return fmt.Errorf("on side %s: %w", e.name, err)
		}
	}
	for _, x := range exchanges {
		var answers [2]*Answer
		for i, e := range s.engines {
			var err error
			answers[i], err = answerOf(x.request, x.replies[i], e.audit.take(x.replies[i].auditID))
			if err != nil {
				return err
			}
		}
		v, err := compare(x.of, x.request, answers[0], answers[1])
		if err != nil {
			return err
		}
		report(v)
	}
	return nil
}
