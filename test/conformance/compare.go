package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"
)

// Verdict is what came of one request that was put to both engines.
type Verdict struct {
	Case    *placed
	Request Request
	// Native and Ours are the answers as they came, for a report.
	Native, Ours *Answer
	// Diff is how they differ, known differences taken out; "" is agreement.
	Diff string
	// Known are the names of the differences that were taken out.
	Known []string
	// Outcome is the agreed answer in one word, for the summary.
	Outcome string
	// Excepted are the validations that exceptions let pass, and the mutations that they left out.
	Excepted []string
}

// compare judges two answers.
func compare(p *placed, r Request, native, ours *Answer) (*Verdict, error) {
	v := &Verdict{Case: p, Request: r, Native: native, Ours: ours}
	c := &comparison{of: p, request: r}
	var err error
	if c.native, err = native.clone(); err != nil {
		return nil, err
	}
	if c.ours, err = ours.clone(); err != nil {
		return nil, err
	}
	v.Excepted = p.takeExcepted(c)
	for _, d := range differencesOf(p.minor) {
		if d.normalise != nil && d.normalise(c) {
			v.Known = append(v.Known, d.name)
		}
	}
	v.Diff = cmp.Diff(c.native, c.ours, cmpopts.EquateEmpty(), cmpopts.SortSlices(func(a, b Failure) bool {
		return fmt.Sprint(a) < fmt.Sprint(b)
	}))
	v.Diff = firstText(v.Diff, unexpected(r, c.ours), p.wrongExceptions(v.Excepted))
	v.Outcome = outcomeOf(c.ours)
	return v, nil
}

func (a *Answer) clone() (*Answer, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	out := &Answer{}
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("decoding an answer: %w", err)
	}
	return out, nil
}

// firstText returns the first text that is not empty.
func firstText(texts ...string) string {
	return texts[max(0, slices.IndexFunc(texts, func(s string) bool { return s != "" }))]
}

// unexpected says what of a request's own expectations the agreed answer does
// not meet. Two engines that both do nothing agree, too.
func unexpected(r Request, a *Answer) string {
	got := strings.ReplaceAll(a.String(), " "+subject, " ")
	if _, message, ok := strings.Cut(got, " denied request: "); ok {
		got = fmt.Sprintf("%d %s: %s", a.Code, a.Reason, message)
	}
	if !strings.HasPrefix(got, r.Want) {
		return fmt.Sprintf("both answered %q, want %q", got, r.Want)
	}
	text := a.YAML()
	words := strings.Join(strings.Fields(text), " ") // YAML folds long lines
	for _, s := range r.Shows {
		if !strings.Contains(words, s) {
			return fmt.Sprintf("both answered without %q:\n%s", s, text)
		}
	}
	return ""
}

// notInstalled is the outcome where an engine refused the policies.
const notInstalled = "not installed"

func outcomeOf(a *Answer) string {
	switch {
	case a.Code < 400 && len(a.Warnings) > 0:
		return "warned"
	case a.Code < 400 && len(a.Failures) > 0:
		return "audited"
	case a.Code < 400:
		return "allowed"
	case strings.Contains(a.Message, "resulted in error"), strings.Contains(a.Message, "failed to configure"):
		return "failed"
	case strings.Contains(a.Message, subject):
		return "denied"
	default:
		return "refused by others"
	}
}

// Report is a reproducer: the policies of both engines, the request, and both
// answers.
func (v *Verdict) Report() string {
	var out strings.Builder
	fmt.Fprintf(&out, "case %q in namespace %s (tier %q)\n", v.Case.Name, v.Case.slot.namespace, v.Case.slot.tier)
	for i, p := range v.Case.policies {
		native, err := nativeObjects(v.Case.native[i])
		if err != nil {
			fmt.Fprintf(&out, "%v\n", err)
		}
		for _, o := range native {
			out.WriteString("---\n" + toYAML(o))
		}
		out.WriteString("---\n" + toYAML(p))
	}
	for _, x := range v.Case.exceptions {
		out.WriteString("---\n" + toYAML(x))
	}
	if v.Request.Method != "" {
		out.WriteString("--- request\n" + toYAML(v.Request))
	}
	fmt.Fprintf(&out, "--- native\n%s--- ours\n%s--- difference (- native, + ours)\n%s\n", v.Native.YAML(), v.Ours.YAML(), v.Diff)
	return out.String()
}

func toYAML(v any) string {
	text, err := yaml.Marshal(v)
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(string(text), "\n")
	// What every object has and a reader does not need.
	lines = slices.DeleteFunc(lines, func(l string) bool {
		return strings.HasPrefix(l, "status:") || strings.TrimSpace(l) == "creationTimestamp: null"
	})
	return strings.Join(lines, "")
}
