package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// sanitized returns what a Writer makes of text that is written in parts.
func sanitized(t testing.TB, commands bool, parts ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out)
	if commands {
		EscapeCommands(w)
	}
	for _, part := range parts {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("wrote %d of %d bytes: %v", n, len(part), err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestWriter(t *testing.T) {
	tests := map[string]struct {
		text     string
		commands bool
		want     string
	}{
		"text":                      {text: "a\tb\nc é 世界 😀\n", want: "a\tb\nc é 世界 😀\n"},
		"a control sequence":        {text: "\x1b[2J\x1b]0;title\x07", want: `\u001b[2J\u001b]0;title\u0007`},
		"a control sequence of C1":  {text: "\u009b2J", want: `\u009b2J`},
		"a color":                   {text: "\x1b[31mred\x1b[0m", want: `\u001b[31mred\u001b[0m`},
		"a carriage return":         {text: "FAIL\rPASS\b\x7f", want: `FAIL\u000dPASS\u0008\u007f`},
		"marks of direction":        {text: "a\u202eb\u2066c\u200f\u061c", want: `a\u202eb\u2066c\u200f\u061c`},
		"invisible characters":      {text: "a\u200bb\ufeffc\u00add\u3164\u2028", want: `a\u200bb\ufeffc\u00add\u3164\u2028`},
		"invisible tags":            {text: "a\U000e0041\U000e0100", want: `a\U000e0041\U000e0100`},
		"invalid UTF-8":             {text: "a\xff\x9b\xe2\x82", want: `a\xff\x9b\xe2\x82`},
		"a forged control sequence": {text: "\x1bAAAAAAAAAAAAAAAAAAAAAAAAAAr", want: `\u001bAAAAAAAAAAAAAAAAAAAAAAAAAAr`},
		"no commands":               {text: "::set-output name=a::b\n##[group]x\n", want: "::set-output name=a::b\n##[group]x\n"},
		"a workflow command":        {text: "::set-output name=a::b\n \t\u2003::stop-commands::x\nfe80::1 :: x\n: :\n", commands: true, want: "\\u003a:set-output name=a::b\n \t\u2003\\u003a:stop-commands::x\nfe80::1 :: x\n: :\n"},
		"a former workflow command": {text: "a ##[group]\n###[x\n## title\n#[", commands: true, want: "a \\u0023#[group]\n#\\u0023#[x\n## title\n#["},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, sanitized(t, tt.commands, tt.text)); diff != "" {
				t.Errorf("whole (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, sanitized(t, tt.commands, strings.Split(tt.text, "")...)); diff != "" {
				t.Errorf("by characters (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWriterPassesOwnSequences writes colors and workflow commands of this package, beside
// those of data.
func TestWriterPassesOwnSequences(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	EscapeCommands(w)
	text := Paint(Style{to: w}, Red, "FAIL\x1b[32m") + "\n" + WorkflowCommand(w) + "error file=a::\x1b[0m\n::error::b\n" + EraseScreen(w)
	const want = "\x1b[31mFAIL\\u001b[32m\x1b[0m\n::error file=a::\\u001b[0m\n\\u003a:error::b\n\x1b[H\x1b[2J"
	for i := range text { // the parts are bytes
		if _, err := w.Write([]byte{text[i]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// hostile has what a Writer escapes, and what encodings treat in a special way.
const hostile = "a\x1b[2J\x7f\u009b\u202e\u200b\U000e0041\u2028::b ##[group]\n::set-output name=a::b\n\\u202e \"'é😀: # <x>"

// TestEncodings decodes what a Writer makes of JSON and YAML.
func TestEncodings(t *testing.T) {
	want := map[string]any{hostile: []any{hostile, "plain", true, 1.5, nil, map[string]any{"1": "true", "##[x": "::", "e": "", "n": "12"}}}
	for _, format := range []Format{JSON, YAML} {
		for _, commands := range []bool{false, true} {
			t.Run(fmt.Sprint(format, " ", commands), func(t *testing.T) {
				var out bytes.Buffer
				w := NewWriter(&out)
				if commands {
					EscapeCommands(w)
				}
				o := &Options{Format: format}
				o.Out = w
				if err := o.Print(want); err != nil {
					t.Fatal(err)
				}
				checkSanitized(t, commands, out.String())
				var got any
				decode := json.Unmarshal
				if format == YAML {
					decode = yaml.Unmarshal
				}
				if err := decode(out.Bytes(), &got); err != nil {
					t.Fatalf("%v in\n%s", err, out.String())
				}
				if diff := cmp.Diff(any(want), got); diff != "" {
					t.Errorf("(-want +got):\n%s\nin\n%s", diff, out.String())
				}
			})
		}
	}
}

func TestWriteYAMLKeepsComments(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	EscapeCommands(w)
	const text = "# why ##[group]\na: 1 # x\nb:\n- \u202ec\n---\nd: plain\n"
	if err := WriteYAML(w, []byte(text)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("# why # #[group]\na: 1 # x\nb:\n- \"\\u202ec\"\n---\nd: plain\n", out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPrintable(t *testing.T) {
	const want = `a b c\u001b[31m\u202e` + "\uFFFDé"
	if got := Printable("a\nb\tc\x1b[31m\u202e\xffé"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// checkSanitized fails if text can change a terminal, or is a workflow command. It does not
// use the functions of Writer.
func checkSanitized(t *testing.T, commands bool, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Fatalf("invalid UTF-8 in %q", text)
	}
	for _, r := range text {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || unicode.Is(unicode.Cf, r)) {
			t.Fatalf("%U in %q", r, text)
		}
	}
	if !commands {
		return
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##[") {
			t.Fatalf("the workflow command %q", line)
		}
	}
}

// FuzzSanitize checks that no text changes a terminal, that a second Writer changes nothing,
// and that the result is the same however the text is divided.
func FuzzSanitize(f *testing.F) {
	f.Add(hostile, 3, true)
	f.Add("é\x1b[31m \n ::x##[y\xe2\x80", 5, true)
	f.Add("\u202e\xf3\xa0\x81\x81", 2, false)
	f.Fuzz(func(t *testing.T, text string, at int, commands bool) {
		got := sanitized(t, commands, text)
		checkSanitized(t, commands, got)
		if again := sanitized(t, commands, got); again != got {
			t.Errorf("again: %q, want %q", again, got)
		}
		at = max(0, min(at, len(text)))
		if parts := sanitized(t, commands, text[:at], text[at:]); parts != got {
			t.Errorf("in two parts: %q, want %q", parts, got)
		}
		single := make([]string, len(text))
		for i := range single {
			single[i] = text[i : i+1]
		}
		if parts := sanitized(t, commands, single...); parts != got {
			t.Errorf("in bytes: %q, want %q", parts, got)
		}
	})
}
