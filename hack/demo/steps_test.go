package main

import (
	"strings"
	"testing"
)

func TestOutcomeCheck(t *testing.T) {
	denied := outcome{exit: 1, prefix: "Error from server (Forbidden): ", parts: []string{"'require-team-label'", "add the label team"}}
	warned := outcome{stdout: "pod/web created\n", prefix: "Warning: ", parts: []string{"pin the image"}}
	allowed := outcome{stdout: "pod/api created\n"}
	const message = "Error from server (Forbidden): WebhookPolicy 'require-team-label' denied request: add the label team\n"
	tests := map[string]struct {
		want outcome
		give result
		err  string // part of the error; "" means no error
	}{
		"denied":                    {want: denied, give: result{exit: 1, stderr: message}},
		"denied with exit status 0": {want: denied, give: result{stderr: message}, err: "exit status 0, not 1"},
		"denied and created": {
			want: denied,
			give: result{exit: 1, stdout: "pod/web created\n", stderr: message},
			err:  `standard output "pod/web created\n", not ""`,
		},
		"denied for another reason": {
			want: denied,
			give: result{exit: 1, stderr: strings.Replace(message, "Forbidden", "BadRequest", 1)},
			err:  "not one line that begins with",
		},
		"denied by another policy": {
			want: denied,
			give: result{exit: 1, stderr: strings.Replace(message, "team-label", "owner", 1)},
			err:  `without "'require-team-label'"`,
		},
		"denied with another message": {
			want: denied,
			give: result{exit: 1, stderr: strings.Replace(message, "add", "remove", 1)},
			err:  `without "add the label team"`,
		},
		"denied without a message": {want: denied, give: result{exit: 1}, err: "not one line that begins with"},
		"denied with a warning as well": {
			want: denied,
			give: result{exit: 1, stderr: "Warning: x\n" + message},
			err:  "not one line",
		},
		"not denied": {want: denied, give: result{stdout: "pod/web created\n"}, err: "exit status 0, not 1"},
		"warned": {
			want: warned,
			give: result{stdout: "pod/web created\n", stderr: "Warning: pin the image\n"},
		},
		"warned twice": {
			want: warned,
			give: result{stdout: "pod/web created\n", stderr: "Warning: pin the image\nWarning: pin the image\n"},
			err:  "not one line",
		},
		"warned and not created": {
			want: warned,
			give: result{stderr: "Warning: pin the image\n"},
			err:  `standard output "", not "pod/web created\n"`,
		},
		"not warned": {
			want: warned,
			give: result{stdout: "pod/web created\n"},
			err:  "not one line that begins with",
		},
		"allowed": {want: allowed, give: result{stdout: "pod/api created\n"}},
		"allowed with a warning": {
			want: allowed,
			give: result{stdout: "pod/api created\n", stderr: "Warning: x\n"},
			err:  `standard error "Warning: x\n", not empty`,
		},
		"explained": {want: outcome{stdoutParts: []string{"spec.validations[0]"}}, give: result{stdout: "  spec.validations[0]: true\n"}},
		"not explained": {
			want: outcome{stdoutParts: []string{"spec.validations[0]"}},
			give: result{stdout: "nothing\n"},
			err:  `standard output "nothing\n", without "spec.validations[0]"`,
		},
		"not allowed": {want: allowed, give: result{exit: 1, stderr: message}, err: "exit status 1, not 0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.want.check(tt.give)
			switch {
			case tt.err == "" && err != nil:
				t.Error(err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("error %v, want one with %s", err, tt.err)
			}
		})
	}
}

// A step without expectations would accept every result.
func TestStepsAreExact(t *testing.T) {
	for _, s := range steps() {
		if s.want.exit == 0 && s.want.stdout == "" && len(s.want.stdoutParts) == 0 {
			t.Errorf("%s: the expected output is missing", commandLine(s.args))
		}
		if (s.want.prefix == "") != (len(s.want.parts) == 0) {
			t.Errorf("%s: set both prefix and parts", commandLine(s.args))
		}
	}
}
