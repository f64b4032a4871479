package policytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	policyv1alpha1 "github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/nearest"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/policytest/v1alpha1"
)

// Suite is a PolicyTest that is ready to run.
type Suite struct {
	v1alpha1.PolicyTest
	Source load.Object
	Cases  []*Case

	bounds   bounds
	at       time.Time        // of cases that state none; zero is now
	policies []offline.Policy // those to test
	input    *offline.Input   // of its files
	compiler func(policy.Engine) *policy.Compiler
	apis     map[policy.Engine]*offline.APIs
	engines  map[policy.Engine]*offline.Engine
}

// compilers makes one tracing compiler for each version.
func compilers() func(policy.Engine) *policy.Compiler {
	var mu sync.Mutex
	made := map[policy.Engine]*policy.Compiler{}
	return func(e policy.Engine) *policy.Compiler {
		mu.Lock()
		defer mu.Unlock()
		if made[e] == nil {
			made[e] = policy.NewTracingCompiler(e)
		}
		return made[e]
	}
}

// LoadOptions configures Load.
type LoadOptions struct {
	// Stdin is read for the path "-"; nil means that there is none.
	Stdin io.Reader
	// Root is the folder in which tests can name files; "" is the default: for policies and
	// objects, the working directory or, for a test outside of it, the folder that paths
	// name; for an objectFile, the folder of the test.
	Root string
	// At is the time of cases that state none; zero is now.
	At time.Time
	// AllowRemote permits kustomizations to fetch files and repositories.
	AllowRemote bool
	// Skip is called for each test that cannot be read or run, and Load returns all others.
	// If it is nil, they are the error of Load.
	Skip func(error)
}

// Load reads the PolicyTests of paths. In directories it reads only files that contain the
// API group of PolicyTests.
func Load(ctx context.Context, paths []string, options LoadOptions) ([]*Suite, error) {
	objects, err := load.Objects(ctx, paths, load.Options{Stdin: options.Stdin, Select: isTest, Skip: options.Skip})
	if err != nil {
		return nil, err
	}
	var out []*Suite
	var errs []error
	compiler := compilers()
	names := map[string]string{}
	for i := range objects {
		if objects[i].GroupVersionKind().Group != offline.TestGroup {
			continue
		}
		within, err := boundsOf(objects[i].At("").File, paths, options)
		if err != nil {
			return nil, err
		}
		s, err := newSuite(ctx, objects[i], objects, compiler, within, options.At)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if other, ok := names[s.Name]; ok {
			errs = append(errs, s.Source.Errorf("metadata.name", "the test %q is also at %s: rename one of them", s.Name, other))
			continue
		}
		names[s.Name] = s.Source.At("metadata.name").String()
		out = append(out, s)
	}
	if len(out) == 0 && len(errs) == 0 {
		return nil, fmt.Errorf("%s: there is no PolicyTest: write one with apiVersion: %s", strings.Join(paths, ", "), v1alpha1.APIVersion)
	}
	if options.Skip == nil {
		return out, errors.Join(errs...)
	}
	for _, err := range errs {
		options.Skip(err)
	}
	return out, nil
}

// isTest reports whether a file can have a PolicyTest.
func isTest(text []byte) bool { return bytes.Contains(text, []byte(offline.TestGroup+"/")) }

// New makes a PolicyTest without files ready to run. Its policies, and what they read, are
// among the objects.
func New(ctx context.Context, o load.Object, objects []load.Object) (*Suite, error) {
	return newSuite(ctx, o, objects, compilers(), bounds{}, time.Time{})
}

// newSuite decodes a PolicyTest. Policies come from its files and from those of the
// command line.
func newSuite(ctx context.Context, o load.Object, others []load.Object, compiler func(policy.Engine) *policy.Compiler, within bounds,
	at time.Time) (*Suite, error) {
	s := &Suite{
		Source: o, bounds: within, at: at, compiler: compiler,
		apis: map[policy.Engine]*offline.APIs{}, engines: map[policy.Engine]*offline.Engine{},
	}
	if o.APIVersion != v1alpha1.APIVersion || o.Kind != v1alpha1.Kind {
		return nil, o.Errorf("kind", "%s has no kind %s in %s: write kind: %s and apiVersion: %s", offline.TestGroup, o.Kind, o.APIVersion, v1alpha1.Kind, v1alpha1.APIVersion)
	}
	if err := o.Decode(&s.PolicyTest); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := s.loadFiles(ctx, others); err != nil {
		return nil, err
	}
	if err := s.selectPolicies(); err != nil {
		return nil, err
	}
	if err := s.loadCases(); err != nil {
		return nil, err
	}
	return s, nil
}

// check finds missing fields.
func (s *Suite) check() error {
	var errs []error
	missing := func(field, what string) { errs = append(errs, s.Source.Errorf(field, "%s", what)) }
	if s.Name == "" {
		missing("metadata.name", "the test has no name: add it")
	}
	if len(s.Policies) == 0 {
		missing("policies", "name the policies to test")
	}
	if len(s.PolicyTest.Cases) == 0 {
		missing("cases", "the test has no cases: add one")
	}
	seen := map[string]bool{}
	for i, c := range s.PolicyTest.Cases {
		at := fmt.Sprintf("cases[%d].name", i)
		switch {
		case c.Name == "":
			missing(at, "the case has no name: add it")
		case seen[c.Name]:
			missing(at, fmt.Sprintf("another case has the name %q: rename one of them", c.Name))
		}
		seen[c.Name] = true
	}
	return errors.Join(errs...)
}

// loadFiles reads the files of the test, or uses those of the command line without any.
func (s *Suite) loadFiles(ctx context.Context, others []load.Object) error {
	objects := others
	if len(s.Files) > 0 {
		paths := make([]string, len(s.Files))
		for i, name := range s.Files {
			paths[i] = filepath.Join(filepath.Dir(s.Source.At("").File), name)
		}
		var err error
		if s.bounds.files == "" {
			return s.Source.Errorf("files", "this test cannot name files: remove them")
		}
		if objects, err = load.Objects(ctx, paths, load.Options{Root: s.bounds.files, AllowRemote: s.bounds.allowRemote}); err != nil {
			return fmt.Errorf("%w\n%w", s.Source.Errorf("files", "reading the files of the test"), err)
		}
	}
	var err error
	s.input, err = offline.Sort(objects)
	return err
}

// selectPolicies finds the policies to test.
func (s *Suite) selectPolicies() error {
	var errs []error
	for i, name := range s.Policies {
		at := slices.IndexFunc(s.input.Policies, func(p offline.Policy) bool { return p.Name == name })
		if at < 0 {
			errs = append(errs, s.Source.Errorf(fmt.Sprintf("policies[%d]", i), "no file has the policy %q%s", name, s.suggestion(name)))
			continue
		}
		s.policies = append(s.policies, s.input.Policies[at])
	}
	if len(errs) == 0 && s.RolloutStep != "" {
		errs = append(errs, s.setStep())
	}
	return errors.Join(errs...)
}

// setStep records the step of the test in the policies, as the leader of Ostiary does.
func (s *Suite) setStep() error {
	isKnown, isFinal := false, s.RolloutStep == v1alpha1.RolloutStepFinal
	for i := range s.policies {
		p := s.policies[i].DeepCopy()
		p.Status.Bindings = nil
		for _, b := range p.Spec.Bindings {
			if b.Rollout == nil || !isFinal && !slices.ContainsFunc(b.Rollout.Steps, s.isStep) {
				continue
			}
			state := policyv1alpha1.BindingStatus{Name: b.Name, Final: isFinal}
			if !isFinal {
				state.Step = s.RolloutStep
			}
			p.Status.Bindings, isKnown = append(p.Status.Bindings, state), true
		}
		s.policies[i].WebhookPolicy = p
	}
	if !isKnown {
		return s.Source.Errorf("rolloutStep", "no rollout of the policies has the step %q: write the name of one, or %s",
			s.RolloutStep, v1alpha1.RolloutStepFinal)
	}
	return nil
}

func (s *Suite) isStep(step policyv1alpha1.RolloutStep) bool { return step.Name == s.RolloutStep }

func (s *Suite) suggestion(name string) string {
	found := nearest.Name(name, func(yield func(string) bool) {
		for _, p := range s.input.Policies {
			if !yield(p.Name) {
				return
			}
		}
	})
	if found == "" {
		return ": add its file to files"
	}
	return fmt.Sprintf(", did you mean %q?", found)
}

// version returns the version of a case.
func (s *Suite) version(field, text string) (policy.Engine, error) {
	version := inputs.Version{Engine: policy.LatestEngine}
	if text != "" {
		if err := version.Set(text); err != nil {
			return 0, s.Source.Errorf(field, "%v", err)
		}
	}
	return version.Engine, nil
}

// engine returns the engine for a version.
func (s *Suite) engine(e policy.Engine) (*offline.Engine, error) {
	if s.engines[e] == nil {
		made, err := s.newEngine(e, s.policies)
		if err != nil {
			return nil, err
		}
		s.engines[e] = made
	}
	return s.engines[e], nil
}

func (s *Suite) newEngine(e policy.Engine, policies []offline.Policy) (*offline.Engine, error) {
	if s.apis[e] == nil {
		made, err := offline.NewAPIs(e, s.input.Definitions)
		if err != nil {
			return nil, s.Source.Errorf("files", "%v", err)
		}
		s.apis[e] = made
	}
	return offline.NewEngine(policies, s.compiler(e), s.apis[e])
}
