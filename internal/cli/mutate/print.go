package mutate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/objectpatch"
)

// Patched is a JSON patch for an object.
type Patched struct {
	APIVersion string                  `json:"apiVersion"`
	Kind       string                  `json:"kind"`
	Namespace  string                  `json:"namespace,omitempty"`
	Name       string                  `json:"name"`
	Patch      []objectpatch.Operation `json:"patch"`
}

// print writes the result for one object, and counts it.
func (c *command) print(r *result) error {
	if r.unasked {
		c.unasked++
	}
	if r.uncalled {
		c.uncalled++
	}
	switch {
	case r.skipped != nil:
		c.setting.Skipped.Add(r.skipped)
	case len(r.errs) > 0:
		c.failed++
		_, err := fmt.Fprintln(c.ErrOut, output.Printable(errors.Join(r.errs...).Error()))
		return err
	case len(r.text) > 0:
		c.changed++
		if _, err := c.Out.Write(r.text); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	}
	return nil
}

// render makes the text about an object that mutations change. It has none if one takes back what another one changes.
func (c *command) render(r *result) error {
	if r.after == nil {
		return nil
	}
	before, after, err := r.trees()
	if err != nil {
		return err
	}
	operations := objectpatch.Diff(before.Object, after.Object)
	if len(operations) == 0 {
		return nil
	}
	var text bytes.Buffer
	switch c.Format {
	case output.Patch:
		err = output.WriteJSON(&text, Patched{
			APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.namespace, Name: r.Metadata.Name, Patch: operations,
		})
	case output.Diffs:
		text.WriteString(output.PaintDiff(output.Colored(c.Out), output.Diff(r.String(), r.before, r.after)))
	default:
		err = c.renderConfiguration(&text, r, before, after)
	}
	r.text = text.Bytes()
	return err
}

func (r *result) trees() (before, after *unstructured.Unstructured, err error) {
	before, after = &unstructured.Unstructured{}, &unstructured.Unstructured{}
	if err := errors.Join(before.UnmarshalJSON(r.before), after.UnmarshalJSON(r.after)); err != nil {
		return nil, nil, fmt.Errorf("reading the result for %s: %w", r, err)
	}
	return before, after, nil
}

// renderConfiguration adds the fields that changed as an apply configuration. It skips an object that none can express.
func (c *command) renderConfiguration(text *bytes.Buffer, r *result, before, after *unstructured.Unstructured) error {
	configuration, err := c.configuration(r, before, after)
	if err != nil {
		r.skipped = r.Errorf("", "%s: %v", r, err)
		return nil
	}
	if c.Format == output.YAML {
		text.WriteString("---\n")
	}
	to := *c.Options
	to.Out = text
	return to.Print(json.RawMessage(configuration))
}

// configuration returns the apply configuration, in JSON, that changes an object as mutations do. It has no field that they
// leave as it is, besides the keys of the elements of lists, so that its manager owns nothing else.
func (c *command) configuration(r *result, before, after *unstructured.Unstructured) ([]byte, error) {
	converter := c.setting.Engine.APIs.GetTypeConverter(r.GroupVersionKind())
	if converter == nil {
		return nil, errors.New("the schema of the kind is not known: use -o patch")
	}
	old, err := converter.ObjectToTyped(before, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("reading the object by its schema: %w", err)
	}
	changed, err := converter.ObjectToTyped(after, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("reading the result by its schema: %w", err)
	}
	difference, err := old.Compare(changed)
	if err != nil {
		return nil, fmt.Errorf("comparing the result: %w", err)
	}
	if !difference.Removed.Empty() {
		return nil, fmt.Errorf("a mutation removes %s, which no apply configuration does: use -o patch", difference.Removed)
	}
	fields := difference.Added.Union(difference.Modified).Leaves()
	extracted, err := converter.TypedToObject(changed.ExtractItems(fields, typed.WithAppendKeyFields()))
	if err != nil {
		return nil, fmt.Errorf("extracting what changed: %w", err)
	}
	out, ok := extracted.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("unexpected %T", extracted)
	}
	out.SetGroupVersionKind(r.GroupVersionKind())
	out.SetName(r.Metadata.Name)
	out.SetNamespace(r.namespace)
	return out.MarshalJSON()
}
