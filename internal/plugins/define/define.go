// Package define defines admission plugins: it decodes, defaults and checks their
// configuration strictly, with the path of each error.
package define

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
)

// Definition is a plugin of the catalogue.
type Definition struct {
	Name v1alpha1.PluginName
	// Config is the type of the configuration. The page of the plugin is generated from
	// it: each field has a comment.
	Config reflect.Type
	// New creates the plugin from a configuration, which can be empty. Errors have the
	// path in the configuration. Without a configuration it always returns a plugin, for
	// its rules.
	New func(config []byte, at *field.Path) (pluginapi.Plugin, field.ErrorList)
}

// Plugin defines a plugin with a configuration of type C. The function sets defaults and
// checks.
func Plugin[C any](name v1alpha1.PluginName, make func(C, *field.Path) (pluginapi.Plugin, field.ErrorList)) Definition {
	return Definition{Name: name, Config: reflect.TypeFor[C](), New: func(config []byte, at *field.Path) (pluginapi.Plugin, field.ErrorList) {
		var c C
		if errs := Decode(config, &c, at); len(errs) > 0 {
			return nil, errs
		}
		return make(c, at)
	}}
}

// None is the configuration of a plugin without settings.
type None struct{}

// Decode decodes a configuration. Unknown and duplicate fields are errors. Names are
// case-sensitive.
func Decode(config []byte, into any, at *field.Path) field.ErrorList {
	if config = bytes.TrimSpace(config); len(config) == 0 || string(config) == "null" {
		return nil
	}
	strict, err := json.UnmarshalStrict(config, into)
	if err != nil {
		return field.ErrorList{mismatch(err, at)}
	}
	var errs field.ErrorList
	for _, e := range strict {
		errs = append(errs, unknown(e, at))
	}
	return errs
}

func mismatch(err error, at *field.Path) *field.Error {
	var kind *stdjson.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return field.Invalid(at, field.OmitValueType{}, "it cannot be read: "+err.Error())
	}
	return field.TypeInvalid(below(at, kind.Field), field.OmitValueType{}, fmt.Sprintf("write a value that fits %s instead of a %s", kind.Type, kind.Value))
}

func unknown(err error, at *field.Path) *field.Error {
	var named json.FieldError
	if !errors.As(err, &named) {
		return field.Invalid(at, field.OmitValueType{}, err.Error())
	}
	path := below(at, named.FieldPath())
	named.SetFieldPath(path.String())
	return field.Forbidden(path, "remove it: "+err.Error())
}

// below returns the path of a field that a decoder names.
func below(at *field.Path, path string) *field.Path {
	if path == "" {
		return at
	}
	return at.Child(strings.TrimPrefix(path, "."))
}

// Typed holds the optional apiVersion and kind of a configuration.
type Typed struct {
	// apiVersion is optional, and that of the native file.
	APIVersion string `json:"apiVersion,omitempty"`
	// kind is optional, and that of the native file.
	Kind string `json:"kind,omitempty"`
}

// Check rejects another kind or version.
func (t Typed) Check(apiVersion, kind string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.APIVersion != "" && t.APIVersion != apiVersion {
		errs = append(errs, field.NotSupported(at.Child("apiVersion"), t.APIVersion, []string{apiVersion}))
	}
	if t.Kind != "" && t.Kind != kind {
		errs = append(errs, field.NotSupported(at.Child("kind"), t.Kind, []string{kind}))
	}
	return errs
}
