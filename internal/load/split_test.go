package load

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	podA = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`
	podB = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}`
	list = `{"apiVersion":"v1","kind":"List","items":[` + podA + `,` + podB + `]}`
)

// Objects that follow each other in one file are all read, or what is wrong is reported with its
// position: none is dropped.
func TestSeveralObjects(t *testing.T) {
	indented := strings.NewReplacer("{", "{\n\t", ",", ",\n\t").Replace(podA)
	const trailing = `invalid YAML: text follows the end of the document: begin another one with "---"`
	tests := map[string]struct {
		text        string
		want        []string // the objects with the position of their name
		wantSkipped []string
	}{
		"JSON lines":            {text: podA + "\n" + podB + "\n", want: []string{"Pod a 1:45", "Pod b 2:45"}},
		"JSON lines of Windows": {text: podA + "\r\n" + podB + "\r\n", want: []string{"Pod a 1:45", "Pod b 2:45"}},
		"concatenated JSON":     {text: podA + podB, want: []string{"Pod a 1:45", "Pod b 1:101"}},
		"JSON with white space": {text: " " + podA + " \t" + podB + "\n\n", want: []string{"Pod a 1:46", "Pod b 1:104"}},
		"a byte order mark":     {text: "\xef\xbb\xbf" + podA + "\n" + podB, want: []string{"Pod a 1:45", "Pod b 2:45"}},
		"JSON of several lines": {text: indented + "\n" + podB, want: []string{"Pod a 5:2", "Pod b 6:45"}},
		"lists": {
			text: list + "\n" + list + podA,
			want: []string{"Pod a 1:87", "Pod b 1:144", "Pod a 2:87", "Pod b 2:144", "Pod a 2:202"},
		},
		"a stream of YAML": {
			text: pod + "---\n" + podA + "\n" + podB + "\n---\n" + pod,
			want: []string{"Pod shop/web 3:12", "Pod a 5:45", "Pod b 6:45", "Pod shop/web 10:12"},
		},
		"JSON after a separator": {text: "--- " + podA + podB, want: []string{"Pod a 1:49", "Pod b 1:105"}},
		"comments":               {text: "# {\n" + podA + " # }\n# {\n" + podB + "\n# end\n", want: []string{"Pod a 2:45", "Pod b 4:45"}},
		"flow maps of YAML": {
			text: "{apiVersion: v1, kind: Pod, metadata: {name: it's}} {apiVersion: v1, kind: Pod, metadata: {name: '}''{'}}",
			want: []string{"Pod it's 1:40", "Pod }'{ 1:92"},
		},
		"brackets and quotes in texts": {
			text: strings.Replace(podA, `"a"`, `"}\"{\\"`, 1) + "\n" + podB,
			want: []string{`Pod }"{\ 1:45`, "Pod b 2:45"},
		},
		"the end of a document": {text: pod + "...\n" + pod + "... # end\n", want: []string{"Pod shop/web 3:12", "Pod shop/web 7:12"}},
		"a truncated last object": {
			text: podA + "\n" + podB + "\n" + podB[:30], want: []string{"Pod a 1:45", "Pod b 2:45"},
			wantSkipped: []string{"a.json:3:31: invalid JSON: the text ends within an object: restore what is missing"},
		},
		"a truncated first object": {
			text:        podA[:30],
			wantSkipped: []string{"a.json:1:31: invalid JSON: the text ends within an object: restore what is missing"},
		},
		"a text within the line": {
			text: podA + " garbage", want: []string{"Pod a 1:45"},
			wantSkipped: []string{"a.json:1:58: got a string, want an object"},
		},
		"a text in the next line": {
			text: podA + "\ngarbage: true\n", want: []string{"Pod a 1:45"},
			wantSkipped: []string{"a.json:2:1: the document has no kind: add apiVersion and kind"},
		},
		"a bracket too many": {
			text: podA + "}\n" + podB, want: []string{"Pod a 1:45"},
			wantSkipped: []string{"a.json:1:57: invalid YAML: did not find expected node content"},
		},
		"a comma": {
			text: podA + ",\n" + podB, want: []string{"Pod a 1:45"},
			wantSkipped: []string{"a.json:1:57: invalid YAML: did not find expected node content"},
		},
		"an invalid object between others": {
			text: podA + "\n{\"apiVersion\":\"v1\"}\n" + podB, want: []string{"Pod a 1:45", "Pod b 3:45"},
			wantSkipped: []string{"a.json:2:1: the document has no kind: add apiVersion and kind"},
		},
		"a duplicate in a later object": {
			text:        podA + `{"apiVersion":"v1","kind":"Pod","kind":"Pod"}`,
			want:        []string{"Pod a 1:45"},
			wantSkipped: []string{`a.json:1:89: the key "kind" is there twice: remove one of them`},
		},
		"an array": {
			text: "[" + podA + "]\n" + podB, want: []string{"Pod b 2:45"},
			wantSkipped: []string{"a.json:1:1: got an array, want an object"},
		},
		"a map with less indentation": {
			text:        "  apiVersion: v1\n  kind: Pod\nmetadata: {name: a}\n",
			wantSkipped: []string{"a.json:3:1: " + trailing},
		},
		"a text after quotes": {
			text:        "'text'\napiVersion: v1\nkind: Pod\n",
			wantSkipped: []string{"a.json:2:1: " + trailing},
		},
		"an apostrophe that opens no text": {
			text:        "{apiVersion: v1, kind: Pod, metadata: {name: it 'is}}\n{apiVersion: v1, kind: Pod}\n",
			wantSkipped: []string{"a.json:2:1: " + trailing},
		},
		"a template of Helm": {
			text:        "{{ if .Values.pod }}\n" + pod + "{{ end }}\n",
			wantSkipped: []string{"a.json:1:1: a template and no YAML: name the folder of its chart, which helm renders"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Chdir(writeFiles(t, map[string]string{"a.json": tt.text}))
			var skipped []string
			objects, err := Objects(t.Context(), []string{"a.json"}, Options{Skip: func(err error) { skipped = append(skipped, err.Error()) }})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range objects {
				at := objects[i].At("metadata.name")
				got = append(got, fmt.Sprintf("%s %d:%d", objects[i].String(), at.Line, at.Column))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantSkipped, skipped); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
			if _, err := Text(t.Context(), "a.json", []byte(tt.text)); (err != nil) != (len(tt.wantSkipped) > 0) {
				t.Errorf("as a text: got %v, want an error: %t", err, len(tt.wantSkipped) > 0)
			}
		})
	}
}

func TestTooManyDocuments(t *testing.T) {
	_, err := split("a.json", []byte(strings.Repeat("{}", maxDocuments+1)))
	var located *Error
	if !errors.As(err, &located) || located.Text != "the file has more than 1000000 documents: split it" {
		t.Errorf("got %v, want an error about the number of documents", err)
	}
}
