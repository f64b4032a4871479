// Package define makes the definitions of admission plugins: how the
// configuration of one is read, completed and checked, strictly and with the
// path of whatever is wrong with it.
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
	"github.com/ostiary/ostiary/internal/policy"
)

// Definition is one plugin of the catalogue.
type Definition struct {
	Name v1alpha1.PluginName
	// Config is the type of the configuration, of which the plugin's page is
	// written: each field has a comment.
	Config reflect.Type
	// New makes the plugin of a configuration, empty where there is none. The
	// errors say where in it they are. Without a configuration there is always a
	// plugin, for its rules, even if it has to be configured.
	New func(config []byte, at *field.Path) (policy.Plugin, field.ErrorList)
}

// Plugin defines a plugin whose configuration is a C. The function gets one that
// has been read without errors; it fills in defaults and checks.
func Plugin[C any](name v1alpha1.PluginName, make func(C, *field.Path) (policy.Plugin, field.ErrorList)) Definition {
	return Definition{Name: name, Config: reflect.TypeFor[C](), New: func(config []byte, at *field.Path) (policy.Plugin, field.ErrorList) {
		var c C
		if errs := Decode(config, &c, at); len(errs) > 0 {
			return nil, errs
		}
		return make(c, at)
	}}
}

// None is the configuration of a plugin that has no settings.
type None struct{}

// Decode reads a configuration. Fields that are not known, or are there twice,
// are errors. Names are matched case by case.
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

// below is the path of a field in a configuration, as decoders name it.
func below(at *field.Path, path string) *field.Path {
	if path == "" {
		return at
	}
	return at.Child(strings.TrimPrefix(path, "."))
}

// Typed is what a configuration with apiVersion and kind begins with. Both may
// be left out.
type Typed struct {
	// apiVersion is as in the native file, or left out.
	APIVersion string `json:"apiVersion,omitempty"`
	// kind is as in the native file, or left out.
	Kind string `json:"kind,omitempty"`
}

// Check refuses another kind of configuration, or another version of it.
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
