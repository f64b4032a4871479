package main

import (
	"strings"
	"testing"
)

func TestOutcomeCheck(t *testing.T) {
	refused := outcome{exit: 1, begins: "Error from server (Forbidden): ", holds: []string{"'require-team-label'", "add the label team"}}
	warned := outcome{stdout: "pod/web created\n", begins: "Warning: ", holds: []string{"pin the image"}}
	allowed := outcome{stdout: "pod/api created\n"}
	const message = "Error from server (Forbidden): WebhookPolicy 'require-team-label' denied request: add the label team\n"
	tests := map[string]struct {
		want outcome
		give result
		err  string // what the error has to say; "" where all is well
	}{
		"refused":                        {refused, result{exit: 1, stderr: message}, ""},
		"refused with exit status 0":     {refused, result{stderr: message}, "exit status 0, not 1"},
		"refused and created":            {refused, result{exit: 1, stdout: "pod/web created\n", stderr: message}, `standard output "pod/web created\n", not ""`},
		"refused for another reason":     {refused, result{exit: 1, stderr: strings.Replace(message, "Forbidden", "BadRequest", 1)}, "not one line that begins with"},
		"refused by another policy":      {refused, result{exit: 1, stderr: strings.Replace(message, "team-label", "owner", 1)}, `without "'require-team-label'"`},
		"refused with another message":   {refused, result{exit: 1, stderr: strings.Replace(message, "add", "remove", 1)}, `without "add the label team"`},
		"refused without a word":         {refused, result{exit: 1}, "not one line that begins with"},
		"refused with a warning as well": {refused, result{exit: 1, stderr: "Warning: x\n" + message}, "not one line"},
		"not refused":                    {refused, result{stdout: "pod/web created\n"}, "exit status 0, not 1"},
		"warned":                         {warned, result{stdout: "pod/web created\n", stderr: "Warning: pin the image\n"}, ""},
		"warned twice":                   {warned, result{stdout: "pod/web created\n", stderr: "Warning: pin the image\nWarning: pin the image\n"}, "not one line"},
		"warned and not created":         {warned, result{stderr: "Warning: pin the image\n"}, `standard output "", not "pod/web created\n"`},
		"not warned":                     {warned, result{stdout: "pod/web created\n"}, "not one line that begins with"},
		"allowed":                        {allowed, result{stdout: "pod/api created\n"}, ""},
		"allowed with a warning":         {allowed, result{stdout: "pod/api created\n", stderr: "Warning: x\n"}, `standard error "Warning: x\n", not empty`},
		"not allowed":                    {allowed, result{exit: 1, stderr: message}, "exit status 1, not 0"},
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

// A check without anything to look for would be content with every answer.
func TestShowsAreExact(t *testing.T) {
	for _, s := range shows() {
		if s.want.exit == 0 && s.want.stdout == "" {
			t.Errorf("%s: no output is asked for", commandLine(s.args))
		}
		if (s.want.begins == "") != (len(s.want.holds) == 0) {
			t.Errorf("%s: ask for both the beginning and the parts of the message", commandLine(s.args))
		}
	}
}
