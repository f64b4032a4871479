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

// Denial is a denial in the error message of an API server.
type Denial struct {
	Policy  string `json:"policy"`
	Binding string `json:"binding,omitempty"`
	Message string `json:"message"`
	Help    string `json:"help,omitempty"`
	// Validations are those of the policy that have the message. If none has it, they are
	// those whose messages are computed.
	Validations []DeniedValidation `json:"validations,omitempty"`
}

// DeniedValidation is a validation that can have denied a request.
type DeniedValidation struct {
	Field      string `json:"field"`
	Name       string `json:"name,omitempty"`
	Expression string `json:"expression"`
	// Computed says that the message is that of messageExpression, and not compared.
	Computed bool `json:"computed,omitempty"`
}

var (
	denialText = regexp.MustCompile(`WebhookPolicy '([^']+)'(?: with binding '([^']*)')? denied request: ([^\n]*)`)
	helpText   = regexp.MustCompile(` \(see (https://[^ )]*)\)$`)
)

// denialsIn returns the denials in a text.
func denialsIn(text string) (out []Denial) {
	for _, found := range denialText.FindAllStringSubmatch(text, -1) {
		d := Denial{Policy: found[1], Binding: found[2], Message: strings.TrimSpace(found[3])}
		if help := helpText.FindStringSubmatch(d.Message); help != nil {
			d.Message, d.Help = strings.TrimSuffix(d.Message, help[0]), help[1]
		}
		out = append(out, d)
	}
	return out
}

// add adds the validations of the policy that can have denied the request.
func (d *Denial) add(spec *v1alpha1.WebhookPolicySpec) {
	var computed []DeniedValidation
	for i, v := range spec.Validations {
		found := DeniedValidation{Field: fmt.Sprintf("spec.validations[%d]", i), Name: v.Name, Expression: v.Expression}
		switch {
		case v.Message != "" && strings.TrimSpace(v.Message) == d.Message, d.Message == "failed expression: "+strings.TrimSpace(v.Expression):
			d.Validations = append(d.Validations, found)
		case v.MessageExpression != "":
			found.Computed = true
			computed = append(computed, found)
		}
	}
	if len(d.Validations) == 0 {
		d.Validations = computed
	}
}

// explainDenial explains the text of --denial. The text alone names the policy and the binding,
// so that users without access to policies learn them too.
func (c *command) explainDenial(ctx context.Context) error {
	denials := denialsIn(c.denial)
	if len(denials) == 0 {
		return errors.New("the text has no denial of a WebhookPolicy: paste the whole message, " +
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
		fmt.Fprintf(&out, "\n  message: %s\n", output.Printable(d.Message))
		if d.Help != "" {
			fmt.Fprintf(&out, "  help: %s\n", output.Printable(d.Help))
		}
		for _, v := range d.Validations {
			label := v.Field
			if v.Name != "" {
				label += " (" + v.Name + ")"
			}
			if v.Computed {
				label += ", which computes its message"
			}
			fmt.Fprintf(&out, "  %s: %s\n", output.Printable(label), output.Printable(v.Expression))
		}
	}
	if _, err := fmt.Fprint(c.Out, out.String()); err != nil {
		return fmt.Errorf("writing the explanation: %w", err)
	}
	return nil
}
