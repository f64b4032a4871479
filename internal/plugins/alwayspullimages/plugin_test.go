package alwayspullimages_test

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

func TestPullPolicies(t *testing.T) {
	const spec = "plugin: {name: AlwaysPullImages}"
	const withDebug = "plugin: {name: AlwaysPullImages, config: {ephemeralContainers: true}}"
	tests := map[string]struct {
		spec, subresource string
		operation         admissionv1.Operation
		object, oldObject string
		field, want       string
	}{
		"none, Never and IfNotPresent": {spec: spec,
			object: "{containers: [{name: a, image: x}, {name: b, image: yy, imagePullPolicy: Never}], initContainers: [{name: " +
				"c, image: z, imagePullPolicy: IfNotPresent}]}",
			field: "containers", want: `[{"image":"x","imagePullPolicy":"Always","name":"a"},{"image":"yy","imagePullPolicy":"Always","name":"b"}]`},
		"init containers": {spec: spec, object: "{initContainers: [{name: c, image: z, imagePullPolicy: IfNotPresent}]}",
			field: "initContainers", want: `[{"image":"z","imagePullPolicy":"Always","name":"c"}]`},
		"image volumes": {spec: spec, object: "{volumes: [{name: v, image: {reference: r, pullPolicy: Never}}, {name: w, emptyDir: {}}]}",
			field: "volumes", want: `[{"image":{"pullPolicy":"Always","reference":"r"},"name":"v"},{"emptyDir":{},"name":"w"}]`},
		"what is not known stays": {spec: spec, object: "{containers: [{name: a, image: x, fieldOfTomorrow: {b: 1}}]}",
			field: "containers", want: `[{"fieldOfTomorrow":{"b":1},"image":"x","imagePullPolicy":"Always","name":"a"}]`},
		"update without a new image": {spec: spec, operation: admissionv1.Update,
			object:    "{containers: [{name: a, image: x, imagePullPolicy: Never}]}",
			oldObject: "{containers: [{name: b, image: x}]}",
			field:     "containers", want: `[{"image":"x","imagePullPolicy":"Never","name":"a"}]`},
		"update with a new image": {spec: spec, operation: admissionv1.Update,
			object:    "{containers: [{name: a, image: yy, imagePullPolicy: Never}]}",
			oldObject: "{containers: [{name: a, image: x}]}",
			field:     "containers", want: `[{"image":"yy","imagePullPolicy":"Always","name":"a"}]`},
		"debugging, as natively": {spec: spec, subresource: "ephemeralcontainers", operation: admissionv1.Update,
			object: "{ephemeralContainers: [{name: a, image: yy, imagePullPolicy: Never}]}", oldObject: "{}",
			field: "ephemeralContainers", want: `[{"image":"yy","imagePullPolicy":"Never","name":"a"}]`},
		"debugging, covered": {spec: withDebug, subresource: "ephemeralcontainers", operation: admissionv1.Update,
			object: "{ephemeralContainers: [{name: a, image: yy, imagePullPolicy: Never}]}", oldObject: "{}",
			field: "ephemeralContainers", want: `[{"image":"yy","imagePullPolicy":"Always","name":"a"}]`},
		"debugging, beside older containers": {spec: withDebug, subresource: "ephemeralcontainers", operation: admissionv1.Update,
			object: "{containers: [{name: a, image: x, imagePullPolicy: Never}], ephemeralContainers: [{name: b, image: x, " +
				"imagePullPolicy: Never}, {name: c, image: yy}]}",
			oldObject: "{containers: [{name: a, image: x, imagePullPolicy: Never}], ephemeralContainers: [{name: b, image: x, " +
				"imagePullPolicy: Never}]}",
			field: "ephemeralContainers", want: `[{"image":"x","imagePullPolicy":"Never","name":"b"},{"image":"yy",` +
				`"imagePullPolicy":"Always","name":"c"}]`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := plugintest.Request{Operation: tc.operation, Subresource: tc.subresource, Object: plugintest.Pod(tc.object)}
			if tc.oldObject != "" {
				r.OldObject = plugintest.Pod(tc.oldObject)
			}
			got := plugintest.Ask(t, tc.spec, r, policy.Environment{})
			if field := got.Field("spec", tc.field); got.Code != 0 || field != tc.want {
				t.Errorf("%d %s, %s: %s, want %s", got.Code, got.Message, tc.field, field, tc.want)
			}
		})
	}
}

// Another webhook can revert the pull policy afterwards: the denial names every container.
func TestChangedBack(t *testing.T) {
	got := plugintest.Ask(t, "plugin: {name: AlwaysPullImages}", plugintest.Request{
		ChangedBack: true,
		Object: plugintest.Pod("{containers: [{name: a, image: x, imagePullPolicy: Never}, {name: b, image: yy, " +
			"imagePullPolicy: Always}, {name: c, image: z}]}"),
	}, policy.Environment{})
	const want = `pods "web" is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: "Never": supported values: "Always"` + "\n" +
		`WebhookPolicy 'p' denied request: pods "web" is forbidden: spec.containers[2].imagePullPolicy: Unsupported value: ` +
		`"": supported values: "Always"`
	if got.Code != 403 || got.Reason != "Forbidden" || got.Message != want {
		t.Errorf("%d %s: %s", got.Code, got.Reason, got.Message)
	}
}
