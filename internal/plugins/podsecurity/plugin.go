// Package podsecurity enforces the Pod Security Standards, with levels and exemptions for
// the whole cluster, with the code of the API server.
package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	standards "k8s.io/pod-security-admission/policy"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
)

// Plugin denies Pods, and warns about objects that create Pods.
type Plugin struct {
	admission admission.Admission
	kinds     map[schema.GroupResource]converter
	templates map[schema.GroupVersionResource][]templatePath
}

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Plugin(v1alpha1.PluginPodSecurity, func(c Config, at *field.Path) (pluginapi.Plugin, field.ErrorList) {
		errs := c.check(at)
		templates, more := c.templates(at)
		if errs = append(errs, more...); len(errs) > 0 {
			return nil, errs
		}
		evaluator, err := standards.NewEvaluator(standards.DefaultChecks(), nil)
		p := &Plugin{kinds: builtIn(), templates: templates, admission: admission.Admission{
			Configuration: c.native(), Evaluator: evaluator, Metrics: uncounted{}, PodSpecExtractor: admission.DefaultPodSpecExtractor{},
		}}
		if err = errors.Join(err, p.admission.CompleteConfiguration()); err != nil {
			return nil, field.ErrorList{field.InternalError(at, err)}
		}
		return p, nil
	})
}

// Rules implements pluginapi.Plugin.
func (p *Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	rules := []admissionregistrationv1.RuleWithOperations{
		define.Rule("", "v1", define.Writes(), "pods", "pods/ephemeralcontainers", "namespaces", "podtemplates", "replicationcontrollers"),
		define.Rule("apps", "v1", define.Writes(), "daemonsets", "deployments", "replicasets", "statefulsets"),
		define.Rule("batch", "v1", define.Writes(), "cronjobs", "jobs"),
	}
	for _, r := range slices.SortedFunc(maps.Keys(p.templates), byName) {
		rules = append(rules, define.Rule(r.Group, r.Version, define.Writes(), r.Resource))
	}
	return rules
}

func byName(a, b schema.GroupVersionResource) int {
	return slices.Compare([]string{a.Group, a.Version, a.Resource}, []string{b.Group, b.Version, b.Resource})
}

// Conditions implements plugins.Conditions: updates of Pods and namespaces that change
// nothing relevant are frequent and always allowed.
func (p *Plugin) Conditions() []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{{
		Name: "changes-pod-security",
		Expression: "request.operation != 'UPDATE' || request.resource.group != '' || !(request.resource.resource in " +
			"['pods', 'namespaces']) || " +
			"(request.resource.resource == 'pods' ? object.spec != oldObject.spec : " +
			"(has(object.metadata.labels) ? object.metadata.labels : {}) != (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}))",
	}}
}

// Validate implements pluginapi.Validator.
func (p *Plugin) Validate(ctx context.Context, call *pluginapi.Call) error {
	ctx = klog.NewContext(ctx, logr.Discard()) // errors are returned, or in warnings or annotations
	a := p.admission                           // a copy, which reads the namespaces and Pods of this request
	a.NamespaceGetter, a.PodLister = reader{call}, reader{call}
	if paths, ok := p.templates[call.Resource]; ok {
		return validateTemplates(ctx, &a, call, paths)
	}
	return report(call, a.Validate(ctx, request{Call: call, convert: p.kinds[call.Resource.GroupResource()]}), "")
}

// validateTemplates warns about the templates in an object, as in Deployments.
func validateTemplates(ctx context.Context, a *admission.Admission, call *pluginapi.Call, paths []templatePath) error {
	object, err := call.RequireObject()
	if err != nil {
		return err
	}
	var all []found
	for _, p := range paths {
		all = append(all, p.find(object.Object, "")...)
	}
	if len(all) > maxTemplates {
		call.Annotate("error", fmt.Sprintf("there are more than %d Pod templates: the others are not checked", maxTemplates))
		all = all[:maxTemplates]
	}
	for _, f := range all {
		response := a.ValidatePodController(ctx,
			request{Call: call, convert: func(*pluginapi.Call, *unstructured.Unstructured) (runtime.Object, error) {
				t, err := template(f.value)
				if err != nil {
					return nil, fmt.Errorf("%s is not a Pod template: %w", f.where, err)
				}
				return t, nil
			}})
		prefix := ""
		if len(all) > 1 {
			prefix = f.where + ": "
		}
		_ = report(call, response, prefix) // objects that create Pods are never denied
	}
	return nil
}

// report adds the warnings and annotations of a response, and returns its denial. A
// response without a decision is an error.
func report(call *pluginapi.Call, response *admissionv1.AdmissionResponse, prefix string) error {
	for _, w := range response.Warnings {
		call.Warn(prefix + w)
	}
	for _, key := range slices.Sorted(maps.Keys(response.AuditAnnotations)) {
		call.Annotate(key, response.AuditAnnotations[key])
	}
	switch {
	case response.Allowed:
		return nil
	case response.Result == nil:
		return errors.New("no reason is given")
	case response.Result.Code == http.StatusForbidden || response.Result.Code == http.StatusUnprocessableEntity:
		return &apierrors.StatusError{ErrStatus: *response.Result}
	}
	return errors.New(response.Result.Message)
}

// converter converts an object of a call to its Go type.
type converter func(*pluginapi.Call, *unstructured.Unstructured) (runtime.Object, error)

// builtIn returns the kinds of the native plugin.
func builtIn() map[schema.GroupResource]converter {
	return map[schema.GroupResource]converter{
		corev1.Resource("namespaces"):             typedAs[corev1.Namespace],
		corev1.Resource("pods"):                   typedAs[corev1.Pod],
		corev1.Resource("podtemplates"):           typedAs[corev1.PodTemplate],
		corev1.Resource("replicationcontrollers"): typedAs[corev1.ReplicationController],
		appsv1.Resource("daemonsets"):             typedAs[appsv1.DaemonSet],
		appsv1.Resource("deployments"):            typedAs[appsv1.Deployment],
		appsv1.Resource("replicasets"):            typedAs[appsv1.ReplicaSet],
		appsv1.Resource("statefulsets"):           typedAs[appsv1.StatefulSet],
		batchv1.Resource("cronjobs"):              typedAs[batchv1.CronJob],
		batchv1.Resource("jobs"):                  typedAs[batchv1.Job],
	}
}

func typedAs[T any, P interface {
	*T
	runtime.Object
}](call *pluginapi.Call, object *unstructured.Unstructured) (runtime.Object, error) {
	out, err := pluginapi.Typed[T](call, object)
	if err != nil {
		return nil, err
	}
	return P(out), nil
}

// request is a call with the interface of the API server's code.
type request struct {
	*pluginapi.Call
	convert converter
}

// GetResource implements api.Attributes.
func (r request) GetResource() schema.GroupVersionResource { return r.Resource }

// GetOperation implements api.Attributes.
func (r request) GetOperation() admissionv1.Operation {
	return admissionv1.Operation(r.Call.GetOperation())
}

// GetUserName implements api.Attributes.
func (r request) GetUserName() string { return r.GetUserInfo().GetName() }

// GetObject implements api.Attributes.
func (r request) GetObject() (runtime.Object, error) { return r.made(r.Object()) }

// GetOldObject implements api.Attributes.
func (r request) GetOldObject() (runtime.Object, error) { return r.made(r.OldObject()) }

func (r request) made(object *unstructured.Unstructured) (runtime.Object, error) {
	if object == nil || r.convert == nil {
		return nil, fmt.Errorf("there is no object of a kind that has Pods: %s", r.Resource)
	}
	return r.convert(r.Call, object)
}

// reader reads namespaces and Pods of a call.
type reader struct{ call *pluginapi.Call }

// GetNamespace implements admission.NamespaceGetter.
func (r reader) GetNamespace(ctx context.Context, _ string) (*corev1.Namespace, error) {
	return r.call.Namespace(ctx)
}

// ListPods implements admission.PodLister.
func (r reader) ListPods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	if r.call.Pods == nil {
		return nil, errors.New("pods are not available here")
	}
	pods, more, err := r.call.Pods.PodsIn(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if more > 0 {
		r.call.Warn(fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods",
			len(pods), int64(len(pods))+more))
	}
	return pods, nil
}

// uncounted counts nothing: evaluations are counted for all plugins.
type uncounted struct{}

var _ metrics.Recorder = uncounted{}

// RecordEvaluation implements metrics.Recorder.
func (uncounted) RecordEvaluation(metrics.Decision, api.LevelVersion, metrics.Mode, api.Attributes) {}

// RecordExemption implements metrics.Recorder.
func (uncounted) RecordExemption(api.Attributes) {}

// RecordError implements metrics.Recorder.
func (uncounted) RecordError(bool, api.Attributes) {}
