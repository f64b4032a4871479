package oracles

import (
	"context"
	"encoding/json"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ratcheted is a part of the message about a validation that fails and lets an UPDATE pass.
const ratcheted = "because the stored object fails it too"

// sourceSays reports whether a message of the source has one of some texts.
func (d *Disagreement) sourceSays(texts ...string) bool { return haveText(d.Source.Messages, texts) }

// oursSays reports whether a message of the result has one of some texts.
func (d *Disagreement) oursSays(texts ...string) bool { return haveText(d.Ours.Messages, texts) }

func haveText(messages, texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.Join(messages, " "), text) })
}

// storedFails reports whether the result denies the old object as if it were created.
func (d *Disagreement) storedFails() bool {
	created := d.Request.DeepCopy()
	created.Operation, created.Object, created.OldObject = admissionv1.Create, created.OldObject, runtime.RawExtension{}
	decision, err := d.Converted.Decide(context.Background(), created)
	return err == nil && !decision.Allowed
}

func (d *Disagreement) isAboutWorkload() bool { return workloads()[d.Request.Kind.Kind] != "" }

// hasSameTemplate reports whether an UPDATE leaves the template of a workload unchanged.
func (d *Disagreement) hasSameTemplate() bool {
	at := path{"spec", "template"}
	if d.Request.Kind.Kind == "CronJob" {
		at = path{"spec", "jobTemplate", "spec", "template"}
	}
	var current, old object
	return json.Unmarshal(d.Request.Object.Raw, &current) == nil &&
		json.Unmarshal(d.Request.OldObject.Raw, &old) == nil &&
		reflect.DeepEqual(valueAt(current, at), valueAt(old, at))
}

// numberValue is a number as the value of a field.
var numberValue = regexp.MustCompile(`:-?[0-9][0-9.eE+-]*`)

// withoutLargeNumbers replaces numbers of seconds whose nanoseconds overflow by the largest ones that do not.
func withoutLargeNumbers(text string) string {
	const most = math.MaxInt64 / int64(time.Second)
	return numberValue.ReplaceAllStringFunc(text, func(found string) string {
		n, err := strconv.ParseFloat(found[1:], 64)
		if err != nil || math.Abs(n) <= float64(most) {
			return found
		}
		return ":" + strconv.FormatInt(int64(math.Copysign(float64(most), n)), 10)
	})
}
