// Package output has what all commands of kubectl-ostiary share: their streams, the
// format of their results, colors and exit statuses.
package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"
)

// Exit statuses of kubectl-ostiary.
const (
	StatusOK       = 0
	StatusFindings = 1 // the command worked and found something
	StatusError    = 2 // the arguments or the input are invalid
)

// FindingsError ends a command that worked and found something, such as a failed test.
type FindingsError struct {
	// Text is a summary for stderr; it can be empty.
	Text string
}

// Error implements error.
func (e *FindingsError) Error() string { return e.Text }

// Status returns the exit status of a command that returned err.
func Status(err error) int {
	var findings *FindingsError
	switch {
	case err == nil:
		return StatusOK
	case errors.As(err, &findings):
		return StatusFindings
	}
	return StatusError
}

// Format is the format of a command's result on stdout.
type Format string

// The formats. Each command supports some of them.
const (
	Table  Format = "table"
	Wide   Format = "wide" // a table with more columns
	JSON   Format = "json"
	YAML   Format = "yaml"
	JUnit  Format = "junit"
	SARIF  Format = "sarif"
	GitHub Format = "github" // workflow commands of GitHub Actions
	Patch  Format = "patch"  // JSON patches
	Diffs  Format = "diff"   // unified diffs
)

// Options are the options of all commands.
type Options struct {
	genericiooptions.IOStreams
	// Version is that of this program.
	Version string
	// Format is set by the flag of AddFormat.
	Format Format
}

// IsTable reports whether the result is written for people.
func (o *Options) IsTable() bool { return o.Format == Table || o.Format == Wide }

// formatFlag is the flag for the format, which accepts only the formats of a command.
type formatFlag struct {
	format         *Format
	allowed        []Format
	selectedGitHub func()
}

// String implements pflag.Value.
func (f formatFlag) String() string { return string(*f.format) }

// Type implements pflag.Value.
func (f formatFlag) Type() string { return "format" }

// Set implements pflag.Value.
func (f formatFlag) Set(text string) error {
	if !slices.Contains(f.allowed, Format(text)) {
		return fmt.Errorf("must be one of %s", joined(f.allowed))
	}
	*f.format = Format(text)
	if Format(text) == GitHub {
		f.selectedGitHub()
	}
	return nil
}

func joined(formats []Format) string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = string(f)
	}
	return strings.Join(names, ", ")
}

// AddFormat adds the flag --output with the formats that a command supports besides
// table, json and yaml.
func (o *Options) AddFormat(c *cobra.Command, more ...Format) {
	o.AddFormats(c, append([]Format{Table, JSON, YAML}, more...)...)
}

// AddFormats adds the flag --output with the formats that a command supports. The first one is the default.
func (o *Options) AddFormats(c *cobra.Command, allowed ...Format) {
	flag := formatFlag{format: &o.Format, allowed: allowed, selectedGitHub: func() {
		EscapeCommands(o.Out)
		EscapeCommands(o.ErrOut)
	}}
	o.Format = allowed[0]
	c.Flags().VarP(flag, "output", "o", "format of the result: "+joined(flag.allowed))
	names := make([]string, len(flag.allowed))
	for i, f := range flag.allowed {
		names[i] = string(f)
	}
	// The flag exists and has no other completion.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

// NoArgs rejects arguments. Files are named with flags, of which the required ones must be there.
func NoArgs(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return missingFlag(c)
	case c.Flags().Lookup("filename") != nil:
		return fmt.Errorf("unexpected argument %q: name files with -f", args[0])
	}
	return fmt.Errorf("unexpected argument %q", args[0])
}

// missingFlag returns an error if a required flag is absent, before cobra's, which does not say what to write.
func missingFlag(c *cobra.Command) (err error) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[cobra.BashCompOneRequiredFlag] != nil && !f.Changed {
			err = fmt.Errorf("--%s is missing: use %s", f.Name, c.UseLine())
		}
	})
	return err
}

// Print writes a result as JSON or YAML.
func (o *Options) Print(result any) error {
	if o.Format != YAML {
		return WriteJSON(o.Out, result)
	}
	text, err := encodeJSON(result, escapeOf)
	if err != nil {
		return err
	}
	converted, err := yaml.JSONToYAML([]byte(text)) // which rejects control characters
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	return WriteYAML(o.Out, converted)
}

// Style says whether and how to write colors. Its zero value is without colors.
type Style struct{ to io.Writer }

// Colored returns the style for w: colors if it is a terminal, and the user has not set
// NO_COLOR (https://no-color.org).
func Colored(w io.Writer) Style {
	if os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w) {
		return Style{to: w}
	}
	return Style{}
}

// ColoredRecording returns the style for w with colors, whatever it is.
func ColoredRecording(w io.Writer) Style { return Style{to: w} }

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := fileOf(w)
	return ok && term.IsTerminal(int(file.Fd()))
}

func fileOf(w io.Writer) (*os.File, bool) {
	if own, ok := w.(*Writer); ok {
		w = own.to
	}
	file, ok := w.(*os.File)
	return file, ok
}

// Width returns the columns of a terminal; 0 for other writers. A terminal that does not know its size has 80.
func Width(w io.Writer) int {
	columns, _ := size(w)
	return columns
}

// Height returns the lines of a terminal; 0 for other writers. A terminal that does not know its size has 24.
func Height(w io.Writer) int {
	_, lines := size(w)
	return lines
}

func size(w io.Writer) (columns, lines int) {
	if !IsTerminal(w) {
		return 0, 0
	}
	file, _ := fileOf(w)
	columns, lines, err := term.GetSize(int(file.Fd()))
	if err != nil || columns <= 0 || lines <= 0 {
		return 80, 24
	}
	return columns, lines
}

// Color is a color of a terminal.
type Color byte

// The colors.
const (
	Red     Color = controlRed
	Green   Color = controlGreen
	Yellow  Color = controlYellow
	Magenta Color = controlMagenta
	Cyan    Color = controlCyan
	Bold    Color = controlBold
	Faint   Color = controlFaint
)

// Paint returns text in a color if the style has colors. Only the writer of the style
// writes it.
func Paint(s Style, c Color, text string) string {
	if s.to == nil || text == "" {
		return text
	}
	return control(s.to, byte(c)) + text + control(s.to, controlReset)
}

// Count returns a number with the noun that it needs.
func Count(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// Some lists at most five names.
func Some(names []string) string {
	const limit = 5
	if len(names) > limit {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
	}
	return strings.Join(names, ", ")
}

// Passed counts the failed validations with which requests pass, as the end of a summary; "" if
// there are none.
func Passed(warned, audited int) (out string) {
	if warned > 0 {
		out = ", " + Count(warned, "warning", "warnings")
	}
	if audited > 0 {
		out += ", " + Count(audited, "audit finding", "audit findings")
	}
	return out
}
