package crd

import "strings"

// lookupWith is the field lookups with one entry, in which a text is replaced.
func lookupWith(old, replacement string) string {
	const lookup = "{name: l, resource: {group: '', version: v1, resource: pods}, storedKeys: '[\"k\"]', requestKeys: '[\"k\"]'}"
	return "lookups: [" + strings.Replace(lookup, old, replacement, 1) + "]"
}

func acceptedLookups() map[string]string {
	return map[string]string{
		"a lookup": lookupWith("", ""),
		"a lookup with every field": lookupWith("storedKeys", "scope: Cluster, keyErrors: Skip, match: AllStoredKeys, "+
			"value: stored.metadata, storedKeys"),
		"as many lookups as allowed, with the longest expressions": "lookups:" + repeat(10, `{name: "`+long(61)+`%d", `+
			`resource: {group: "`+long(253)+`", version: "`+long(63)+`", resource: "`+long(253)+`"}, storedKeys: "'`+long(4094)+
			`'", requestKeys: "'`+long(4094)+`'", value: "'`+long(4094)+`'"}`),
	}
}

func refusedLookups() map[string]refusedCase {
	const first = "spec.lookups[0]."
	return map[string]refusedCase{
		"11 lookups": {
			"lookups:" + repeat(11, "{name: l%d, resource: {version: v1, resource: pods}, storedKeys: '[]', requestKeys: '[]'}"),
			[]string{"spec.lookups: Too many: 11: must have at most 10 items"},
		},
		"a lookup twice": {
			strings.TrimSuffix(lookupWith("", ""), "]") + ", {name: l, resource: {version: v1, resource: pods}, " +
				"storedKeys: '[]', requestKeys: '[]'}]",
			[]string{`spec.lookups[1]: Duplicate value: {"name":"l"}`},
		},
		"a lookup in the cluster that blocks requests": {
			lookupWith("storedKeys", "scope: Cluster, storedKeys"),
			[]string{
				first + "keyErrors: Required value: set keyErrors to Skip: with scope Cluster, one object in any namespace could " +
					"otherwise block every request",
			},
		},
		"a lookup named with a dash": {
			lookupWith("name: l", "name: a-b"),
			[]string{first + `name: Invalid value: "a-b": write name with letters, digits and '_', not beginning with a digit`},
		},
		"a lookup named with a reserved word": {
			lookupWith("name: l", "name: namespace"),
			[]string{first + `name: Invalid value: "namespace": choose another name: CEL reserves this word`},
		},
		"a lookup of a subresource": {
			lookupWith("resource: pods", "resource: pods/status"),
			[]string{
				first + `resource.resource: Invalid value: "pods/status": write the plural name of the resource in lower case, ` +
					"without a subresource",
			},
		},
		"a lookup of an unknown scope": {
			lookupWith("storedKeys", "scope: Everywhere, storedKeys"),
			[]string{first + `scope: Unsupported value: "Everywhere": supported values: "Namespace", "Cluster"`},
		},
		"a lookup with an unknown match": {
			lookupWith("storedKeys", "match: Some, storedKeys"),
			[]string{first + `match: Unsupported value: "Some": supported values: "Any", "AllRequestKeys", "AllStoredKeys"`},
		},
		"a lookup with keys of spaces": {
			lookupWith(`storedKeys: '["k"]'`, "storedKeys: ' '"),
			[]string{first + `storedKeys: Required value: write a CEL expression that gives a list of strings`},
		},
		"a lookup beside a backend": {
			backendWith("") + "\n" + lookupWith("", ""),
			[]string{"spec.lookups: Forbidden: remove lookups: the API server evaluates the matchConditions of a backend, without lookups"},
		},
		"a lookup beside a plugin": {
			"validations: null\nplugin: {name: AlwaysDeny}\n" + lookupWith("", ""),
			[]string{"spec.lookups: Forbidden: remove lookups: a plugin reads no lookups"},
		},
	}
}
