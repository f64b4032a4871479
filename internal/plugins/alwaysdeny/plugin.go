// Package alwaysdeny denies every change, until a time: a maintenance freeze.
package alwaysdeny

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
)

const (
	// nativeMessage is the message of the native plugin.
	nativeMessage = "admission control is denying all modifications"
	// maxMessage is the maximum length of another message, in bytes.
	maxMessage = 1024
)

// Config is the plugin's configuration. The native plugin has none.
type Config struct {
	// message is the text of a denial, after `deployments.apps "web" is forbidden: `. At
	// most 1024 bytes. Default: admission control is denying all modifications, as
	// natively.
	Message string `json:"message,omitempty"`
	// until is the end of the freeze, with a time zone, for example 2030-01-31T18:00:00Z.
	// Delete the policy then. Default: until the policy is deleted.
	Until string `json:"until,omitempty"`
}

// Plugin denies every change.
type Plugin struct {
	message string
	until   time.Time
}

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Plugin(v1alpha1.PluginAlwaysDeny, func(c Config, at *field.Path) (pluginapi.Plugin, field.ErrorList) {
		p := &Plugin{message: nativeMessage}
		if c.Message != "" {
			p.message = c.Message
		}
		var errs field.ErrorList
		if len(c.Message) > maxMessage {
			errs = append(errs, field.TooLong(at.Child("message"), "", maxMessage))
		}
		if c.Until != "" {
			var err error
			if p.until, err = time.Parse(time.RFC3339, c.Until); err != nil {
				errs = append(errs, field.Invalid(at.Child("until"), c.Until, "write the time as 2030-01-31T18:00:00Z, with its zone"))
			}
		}
		return p, errs
	})
}

// Rules implements pluginapi.Plugin.
func (p *Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{
			admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect,
		},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}
}

// Validate implements pluginapi.Validator.
func (p *Plugin) Validate(_ context.Context, call *pluginapi.Call) error {
	if !p.until.IsZero() && !call.Now().Before(p.until) {
		return nil
	}
	return call.Forbid("%s", p.message)
}
