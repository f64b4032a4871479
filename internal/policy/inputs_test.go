package policy

import "testing"

func TestReadsManagedFields(t *testing.T) {
	tests := map[string]bool{
		"object.spec.replicas > 1":                                false,
		"object.metadata.labels.size() > 0":                       false,
		"'team' in object.metadata.?labels.orValue({})":           false,
		"object.?metadata.?labels.hasValue()":                     false,
		"has(object.metadata.labels)":                             false,
		"object\n  .metadata\n  .name == oldObject.metadata.name": false,
		"object.metadata.labels[?'a'].orValue('') == ''":          false,
		"object.spec.template.metadata.labels.all(k, k != '')":    false,
		"request.name == ''":                                      false,
		"object.metadata.managedFields.size() == 0":               true,
		"object == oldObject":                                     true,
		"object != null":                                          true,
		"has(object.metadata)":                                    true,
		"object.metadata == oldObject.metadata":                   true,
		"object.metadata.size() < 9":                              true,
		"object.metadata.all(k, k.size() < 9)":                    true,
		"object.exists(k, v, v.size() > 3)":                       true,
		"object['meta' + 'data'].size() > 1":                      true,
		"object[?'metadata'].hasValue()":                          true,
		"object.`metadata`.size() > 1":                            true,
		"dyn(object).metadata.name == ''":                         true,
		"object // a comment\n.spec.x == 1":                       true,
		"object":                                                  true,
		"object.metadata":                                         true,
		"[object.metadata, 1].size() == 2":                        true,
	}
	for expression, want := range tests {
		if got := readsManagedFields(expression); got != want {
			t.Errorf("readsManagedFields(%q) = %t, want %t", expression, got, want)
		}
	}
}
