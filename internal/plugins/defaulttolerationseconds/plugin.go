// Package defaulttolerationseconds sets how long Pods stay on a node that is not ready or
// not reachable, if they do not define it.
package defaulttolerationseconds

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
	"github.com/ostiary/ostiary/internal/plugins/tolerations"
)

// defaultSeconds is the default of the API server.
const defaultSeconds int64 = 300

// Config is the plugin's configuration. The native plugin has flags of the API
// server instead.
type Config struct {
	// defaultNotReadyTolerationSeconds is how long a Pod stays on a node that is not
	// ready, as the flag --default-not-ready-toleration-seconds. Default: 300.
	DefaultNotReadyTolerationSeconds *int64 `json:"defaultNotReadyTolerationSeconds,omitempty"`
	// defaultUnreachableTolerationSeconds is how long a Pod stays on a node that is not
	// reachable, as the flag --default-unreachable-toleration-seconds. Default: 300.
	DefaultUnreachableTolerationSeconds *int64 `json:"defaultUnreachableTolerationSeconds,omitempty"`
	// apiServerSeconds is the value that the API server has added, which is replaced.
	// Default: 300, as its flags.
	APIServerSeconds *int64 `json:"apiServerSeconds,omitempty"`
}

// Plugin adds two tolerations, or replaces those that the API server has added.
type Plugin struct {
	wanted []corev1.Toleration
	native int64
}

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Plugin(v1alpha1.PluginDefaultTolerationSeconds, func(c Config, _ *field.Path) (pluginapi.Plugin, field.ErrorList) {
		return &Plugin{
			native: ptr.Deref(c.APIServerSeconds, defaultSeconds),
			wanted: []corev1.Toleration{
				toleration(corev1.TaintNodeNotReady, ptr.Deref(c.DefaultNotReadyTolerationSeconds, defaultSeconds)),
				toleration(corev1.TaintNodeUnreachable, ptr.Deref(c.DefaultUnreachableTolerationSeconds, defaultSeconds)),
			},
		}, nil
	})
}

func toleration(key string, seconds int64) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}
}

// Rules implements pluginapi.Plugin.
func (p *Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	return define.Pods(define.Writes()...)
}

// Admit implements pluginapi.Mutator. It replaces tolerations of new Pods only: those of existing
// Pods stay as they are. It adds missing ones to both, as the native plugin does.
func (p *Plugin) Admit(_ context.Context, call *pluginapi.Call) (*unstructured.Unstructured, error) {
	pod, err := call.RequireObject()
	if err != nil {
		return nil, err
	}
	list, err := tolerations.OfPod(pod)
	if err != nil {
		return nil, err
	}
	for _, wanted := range p.wanted {
		tolerated := false
		for i := range list {
			t := &list[i].Toleration
			if call.GetOperation() == admission.Create && p.added(t, wanted.Key) {
				list[i] = tolerations.New(wanted)[0]
				tolerated = true
				continue
			}
			tolerated = tolerated || ((t.Key == wanted.Key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == ""))
		}
		if !tolerated {
			list = append(list, tolerations.New(wanted)...)
		}
	}
	return tolerations.PodWith(pod, list)
}

// added reports whether a toleration equals one that the API server adds.
func (p *Plugin) added(t *corev1.Toleration, key string) bool {
	return t.Key == key && t.Operator == corev1.TolerationOpExists && t.Value == "" &&
		t.Effect == corev1.TaintEffectNoExecute && t.TolerationSeconds != nil && *t.TolerationSeconds == p.native
}
