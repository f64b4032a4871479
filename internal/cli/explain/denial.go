package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/output"
)

// policyTimeout is how long reading the policy of a denial may take.
const policyTimeout = 10 * time.Second

// Denial is a denial in the error message of an API server, or a warning of a policy.
type Denial struct {
	Policy  string `json:"policy"`
	Binding string `json:"binding,omitempty"`
	Message string `json:"message"`
	Help    string `json:"help,omitempty"`
	// Warning says that the request passed, and Object what it was about.
	Warning bool   `json:"warning,omitempty"`
	Object  string `json:"object,omitempty"`
	// Validations are those of the policy that have the message, and match conditions whose error it
	// is. If none has it, they are those whose messages are computed.
	Validations []DeniedValidation `json:"validations,omitempty"`
}

// DeniedValidation is a validation or a match condition that can have denied a request.
type DeniedValidation struct {
	Field      string `json:"field"`
	Name       string `json:"name,omitempty"`
	Expression string `json:"expression"`
	// Computed says that the message is that of messageExpression, and not compared.
	Computed bool `json:"computed,omitempty"`
}

var (
	denialText = regexp.MustCompile(`(Validation failed for )?WebhookPolicy '([^']+)'(?: with binding '([^']*)')?` +
		`( denied request| allowed request, because the stored object fails it too)?: ([^\n]*)`)
	helpText   = regexp.MustCompile(` \(see (https://[^ )]*)\)$`)
	objectText = regexp.MustCompile(` \(([^() ]+ [^() ]+)\)$`)
	// templatePath is before a message about a pod template.
	templatePath = regexp.MustCompile(`^spec\S*: `)
	// ownError begins a message that is not that of a validation.
	ownError = regexp.MustCompile(
		`^(?:failed to configure binding|internal error|not evaluated|spec\.mutations\[|expression ')`,
	)
)

// denialsIn returns the denials and the warnings in a text.
func denialsIn(text string) (out []Denial) {
	for _, found := range denialText.FindAllStringSubmatch(text, -1) {
		if found[1] == "" && found[4] == "" {
			continue
		}
		d := Denial{Policy: found[2], Binding: found[3], Message: strings.TrimSpace(found[5])}
		if d.Warning = found[4] != " denied request"; d.Warning {
			d.Object = d.cut(objectText)
		}
		d.Help = d.cut(helpText)
		out = append(out, d)
	}
	return out
}

// cut removes the end of the message that matches a pattern, and returns its first group.
func (d *Denial) cut(end *regexp.Regexp) string {
	found := end.FindStringSubmatch(d.Message)
	if found == nil {
		return ""
	}
	d.Message = strings.TrimSuffix(d.Message, found[0])
	return found[1]
}

// add adds the validations of the policy that can have denied the request.
func (d *Denial) add(spec *v1alpha1.WebhookPolicySpec) {
	var computed []DeniedValidation
	for i, v := range spec.Validations {
		found := DeniedValidation{Field: fmt.Sprintf("spec.validations[%d]", i), Name: v.Name, Expression: v.Expression}
		switch {
		case v.Name != "" && d.names(v.Name), d.hasMessageOf(&v):
			d.Validations = append(d.Validations, found)
		case v.Name == "" && v.MessageExpression != "":
			found.Computed = true
			computed = append(computed, found)
		}
	}
	for i, m := range spec.MatchConditions {
		if d.isErrorOf(m.Expression) {
			d.Validations = append(d.Validations, DeniedValidation{
				Field: fmt.Sprintf("spec.matchConditions[%d]", i), Name: m.Name, Expression: m.Expression,
			})
		}
	}
	if len(d.Validations) == 0 && !ownError.MatchString(d.Message) && !ownError.MatchString(d.body()) {
		d.Validations = computed
	}
}

// names reports whether the message begins with the name of a validation.
func (d *Denial) names(validation string) bool {
	rest, ok := strings.CutPrefix(d.Message, validation)
	return ok && (strings.HasPrefix(rest, ": ") || strings.HasPrefix(rest, " at spec"))
}

// body returns the message without the path of a pod template.
func (d *Denial) body() string { return templatePath.ReplaceAllString(d.Message, "") }

// hasMessageOf reports whether the message is that of a validation without a name, or its error.
func (d *Denial) hasMessageOf(v *v1alpha1.Validation) bool {
	texts := []string{strings.TrimSpace(v.Message), firstLine("failed expression: " + strings.TrimSpace(v.Expression))}
	for _, text := range texts {
		if text != "" && (text == d.Message || text == d.body()) {
			return true
		}
	}
	return d.isErrorOf(v.Expression)
}

// isErrorOf reports whether the message is about an error of an expression. A message ends with its
// first line.
func (d *Denial) isErrorOf(expression string) bool {
	return strings.HasPrefix(d.body(), firstLine("expression '"+expression+"' resulted in error"))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// explainDenial explains the text of --denial. The text alone names the policy and the binding,
// so that users without access to policies learn them too.
func (c *command) explainDenial(ctx context.Context) error {
	denials := denialsIn(c.denial)
	if len(denials) == 0 {
		return errors.New("the text has no denial or warning of a WebhookPolicy: paste the whole message, " +
			"or use kubectl ostiary doctor for other webhooks and for webhooks that fail")
	}
	read, err := c.policyReader(ctx)
	for i := range denials {
		var p *v1alpha1.WebhookPolicy
		if err == nil {
			p, err = read(denials[i].Policy)
		}
		if err != nil {
			_, _ = fmt.Fprintf(c.ErrOut, "the validations are not shown: %s\n", output.Printable(err.Error()))
			break
		}
		denials[i].add(&p.Spec)
	}
	if !c.IsTable() {
		return c.Print(denials)
	}
	return c.writeDenials(denials)
}

// policyReader returns a function that reads a policy: from the files of -f, otherwise from the
// cluster.
func (c *command) policyReader(ctx context.Context) (func(name string) (*v1alpha1.WebhookPolicy, error), error) {
	if len(c.Files) > 0 {
		skipped := output.NewSkipped(c.ErrOut)
		in, err := c.Load(ctx, c.In, skipped)
		if err != nil {
			return nil, err
		}
		skipped.Write()
		return func(name string) (*v1alpha1.WebhookPolicy, error) {
			for _, p := range in.Policies {
				if p.Name == name {
					return p.WebhookPolicy, nil
				}
			}
			return nil, fmt.Errorf("the files have no policy %q", name)
		}, nil
	}
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	config.Timeout = policyTimeout
	from, err := connect.NewCluster(ctx, config)
	if err != nil {
		return nil, err
	}
	return func(name string) (*v1alpha1.WebhookPolicy, error) {
		u, err := from.Get(ctx, "webhookpolicies."+v1alpha1.GroupName, "", name)
		if err != nil {
			return nil, err
		}
		raw, err := u.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("reading the policy: %w", err)
		}
		p := &v1alpha1.WebhookPolicy{}
		if err := json.Unmarshal(raw, p); err != nil {
			return nil, fmt.Errorf("reading the policy: %w", err)
		}
		return p, nil
	}, nil
}

func (c *command) writeDenials(denials []Denial) error {
	style := output.Colored(c.Out)
	var out strings.Builder
	for _, d := range denials {
		fmt.Fprintf(&out, "%s", output.Paint(style, output.Red, output.Printable(d.Policy)))
		if d.Binding != "" {
			fmt.Fprintf(&out, ", binding %s", output.Printable(d.Binding))
		}
		if d.Warning {
			fmt.Fprint(&out, ", a warning: the request passed")
		}
		fmt.Fprintf(&out, "\n  message: %s\n", output.Printable(d.Message))
		if d.Help != "" {
			fmt.Fprintf(&out, "  help: %s\n", output.Printable(d.Help))
		}
		if d.Object != "" {
			fmt.Fprintf(&out, "  object: %s\n", output.Printable(d.Object))
		}
		for _, v := range d.Validations {
			label := v.Field
			if v.Name != "" {
				label += " (" + v.Name + ")"
			}
			if v.Computed {
				label += ", which computes its message"
			}
			fmt.Fprintf(&out, "  %s: %s\n", output.Printable(label), output.Printable(strings.Join(strings.Fields(v.Expression), " ")))
		}
	}
	if _, err := fmt.Fprint(c.Out, output.Wrap(c.Out, out.String())); err != nil {
		return fmt.Errorf("writing the explanation: %w", err)
	}
	return nil
}
