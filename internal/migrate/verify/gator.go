package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/policytest/v1alpha1"
)

// gatorSuite is the part of a Suite of gator that this command evaluates.
type gatorSuite struct {
	Skip  bool        `json:"skip"`
	Tests []gatorTest `json:"tests"`
}

type gatorTest struct {
	Name       string      `json:"name"`
	Template   string      `json:"template"`
	Constraint string      `json:"constraint"`
	Invalid    bool        `json:"invalid"`
	Skip       bool        `json:"skip"`
	Cases      []gatorCase `json:"cases"`
}

type gatorCase struct {
	Name       string           `json:"name"`
	Object     string           `json:"object"`
	Inventory  []string         `json:"inventory"`
	Skip       bool             `json:"skip"`
	Assertions []gatorAssertion `json:"assertions"`
}

type gatorAssertion struct {
	// Violations is yes, no or a number. In older versions of YAML, yes is a boolean.
	Violations any     `json:"violations"`
	Message    *string `json:"message"`
}

// messageCount is a wanted number of messages.
type messageCount struct {
	pattern *regexp.Regexp // nil matches all
	atLeast int
	exactly *int
}

// check returns how the messages differ; empty if they do not.
func (c *messageCount) check(messages []string) string {
	n := 0
	for _, m := range messages {
		if c.pattern == nil || c.pattern.MatchString(m) {
			n++
		}
	}
	what := "messages"
	if c.pattern != nil {
		what = fmt.Sprintf("messages that match %q", c.pattern)
	}
	switch {
	case c.exactly != nil && n != *c.exactly:
		return fmt.Sprintf("got %d %s, want %d: %q", n, what, *c.exactly, messages)
	case n < c.atLeast:
		return fmt.Sprintf("got %d %s, want at least %d: %q", n, what, c.atLeast, messages)
	}
	return ""
}

// suite returns the assertions of a Suite.
func (f *testReader) suite(ctx context.Context) ([]assertion, error) {
	var s gatorSuite
	if err := f.test.Read(&s); err != nil {
		return nil, err
	}
	var out []assertion
	for i, t := range s.Tests {
		for j := range t.Cases {
			field := fmt.Sprintf("tests[%d].cases[%d]", i, j)
			if s.Skip || t.Skip || t.Cases[j].Skip {
				continue
			}
			a, err := f.gatorCase(ctx, field, &t, &t.Cases[j])
			if err != nil {
				return nil, err
			}
			out = append(out, a)
		}
	}
	return out, nil
}

func (f *testReader) gatorCase(ctx context.Context, field string, t *gatorTest, c *gatorCase) (assertion, error) {
	a := assertion{
		source:  f.test,
		field:   field,
		text:    t.Name + " " + c.Name,
		outputs: outputsOf(f.conversionsOf([]string{t.Constraint}), ""),
	}
	objects, err := f.file(ctx, field+".object", c.Object)
	if err != nil {
		return a, err
	}
	if len(objects) != 1 {
		return a, f.test.Errorf(field+".object", "the file %s has %d objects, want one", c.Object, len(objects))
	}
	a.object = &objects[0]
	if a.objects, err = f.files(ctx, field+".inventory", c.Inventory); err != nil {
		return a, err
	}
	if err := a.review(); err != nil {
		return a, err
	}
	for i := range c.Assertions {
		want, fails, err := c.Assertions[i].count()
		if err != nil {
			return a, f.test.Errorf(fmt.Sprintf("%s.assertions[%d]", field, i), "%v", err)
		}
		a.fails = a.fails || fails
		a.counts = append(a.counts, want)
	}
	return a, nil
}

// count returns what an assertion wants, and whether a validation fails.
func (a *gatorAssertion) count() (c messageCount, fails bool, err error) {
	if a.Message != nil {
		if c.pattern, err = regexp.Compile(*a.Message); err != nil {
			return c, false, fmt.Errorf("message: %w", err)
		}
	}
	exactly := 0
	switch v := a.Violations.(type) {
	case nil:
		c.atLeast = 1
		return c, true, nil
	case string:
		if v == "yes" || v == "no" {
			a.Violations = v == "yes"
			return a.count()
		}
	case bool:
		if v {
			c.atLeast = 1
			return c, true, nil
		}
		c.exactly = &exactly
		return c, false, nil
	case float64:
		if exactly = int(v); exactly >= 0 && float64(exactly) == v {
			c.exactly = &exactly
			return c, exactly > 0, nil
		}
	}
	return c, false, fmt.Errorf("violations: want yes, no or a number, got %v", a.Violations)
}

// review takes the objects of an AdmissionReview.
func (a *assertion) review() error {
	if a.object.Kind != "AdmissionReview" || !strings.HasPrefix(a.object.APIVersion, admissionv1.GroupName+"/") {
		return nil
	}
	source := a.object
	var read struct {
		Request *struct {
			Operation string          `json:"operation"`
			Object    json.RawMessage `json:"object"`
			OldObject json.RawMessage `json:"oldObject"`
			UserInfo  struct {
				Username string   `json:"username"`
				Groups   []string `json:"groups"`
			} `json:"userInfo"`
		} `json:"request"`
	}
	if err := source.Read(&read); err != nil {
		return err
	}
	if read.Request == nil {
		return source.Errorf("request", "the AdmissionReview has no request: add it")
	}
	a.object = nil
	for _, part := range []struct {
		raw   json.RawMessage
		field string
		into  **load.Object
	}{{read.Request.Object, "request.object", &a.object}, {read.Request.OldObject, "request.oldObject", &a.old}} {
		if len(part.raw) == 0 || string(part.raw) == "null" {
			continue
		}
		o, err := source.New(part.raw, part.field)
		if err != nil {
			return err
		}
		*part.into = o
	}
	if read.Request.Operation == "DELETE" && a.old == nil {
		a.object, a.old = nil, a.object
	}
	if read.Request.Operation == "DELETE" {
		a.object = nil
	}
	if read.Request.Operation == "CREATE" {
		a.old = nil
	}
	if read.Request.Operation == "UPDATE" && a.old == nil {
		a.old = a.object
	}
	a.change = func(c *v1alpha1.Case) {
		c.Operation = read.Request.Operation
		c.User = read.Request.UserInfo.Username
		c.Groups = read.Request.UserInfo.Groups
	}
	return nil
}

func sameJSON(a, b []byte) bool {
	var left, right any
	return json.Unmarshal(a, &left) == nil && json.Unmarshal(b, &right) == nil && reflect.DeepEqual(left, right)
}
