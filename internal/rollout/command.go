package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Annotation holds the commands of kubectl ostiary rollout: "COMMAND BINDING TOKEN", separated by commas. A command has an
// effect once: the state then has another token.
const Annotation = v1alpha1.GroupName + "/rollout"

// maxCommands is the number of commands that are read: those of the largest number of bindings.
const maxCommands = 100

// Action is what a Command does.
type Action string

// The actions of commands.
const (
	// Pause keeps the step in effect.
	Pause Action = "pause"
	// Resume ends a pause.
	Resume Action = "resume"
	// Skip ends the step in effect at once.
	Skip Action = "skip"
	// Restart begins with the first step.
	Restart Action = "restart"
	// Complete begins the final action at once.
	Complete Action = "complete"
)

// Actions returns all actions.
func Actions() []Action { return []Action{Pause, Resume, Skip, Restart, Complete} }

// Command changes the state of the rollout of a binding.
type Command struct {
	Action  Action
	Binding string
	// Token is that of the state that the command is for.
	Token string
}

// String returns the command as in the annotation.
func (c Command) String() string { return fmt.Sprintf("%s %s %s", c.Action, c.Binding, c.Token) }

// FormatCommands returns the value of the annotation.
func FormatCommands(all []Command) string {
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = c.String()
	}
	return strings.Join(texts, ", ")
}

// ParseCommands reads the value of the annotation. It returns the commands that it can read, also with an error.
func ParseCommands(value string) ([]Command, error) {
	if strings.TrimSpace(value) == "" {
		return nil, nil
	}
	var out []Command
	var err error
	for i, text := range strings.Split(value, ",") {
		if i == maxCommands {
			return out, fmt.Errorf("more than %d commands in annotation %s: write fewer", maxCommands, Annotation)
		}
		fields := strings.Fields(text)
		if len(fields) != 3 || !slices.Contains(Actions(), Action(fields[0])) {
			err = fmt.Errorf("reading %q in annotation %s: write COMMAND BINDING TOKEN with one of the commands %q", text, Annotation, Actions())
			continue
		}
		out = append(out, Command{Action: Action(fields[0]), Binding: fields[1], Token: fields[2]})
	}
	return out, err
}
