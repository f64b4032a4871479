package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// metric is one that the code declares.
type metric struct {
	name, kind, help string
	labels           []string
}

// metricsIn finds the metrics in the source of Go files. Registering the metrics would need
// a cluster.
func metricsIn(root fs.FS, folders ...string) ([]metric, error) {
	var out []metric
	for _, folder := range folders {
		err := fs.WalkDir(root, folder, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			source, err := fs.ReadFile(root, name)
			if err != nil {
				return err
			}
			found, err := declared(name, source)
			out = append(out, found...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

func declared(name string, source []byte) (out []metric, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		m, isMetric, problem := metricOf(call)
		if isMetric {
			out = append(out, m)
		}
		if problem != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, problem))
		}
		return true
	})
	return out, err
}

// metricOf parses a call of a function of client_golang that creates a metric.
func metricOf(call *ast.CallExpr) (m metric, isMetric bool, err error) {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if pkg, isName := identifier(function); !ok || !isName || pkg != "prometheus" || !strings.HasPrefix(function.Sel.Name, "New") {
		return metric{}, false, nil
	}
	made := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(function.Sel.Name, "New"), "Vec"), "Func")
	switch made {
	case "Counter", "Gauge", "Histogram", "Summary":
		m = metric{kind: strings.ToLower(made)}
		err = m.readOptions(call.Args[0])
	case "Desc": // of a metric that is collected at each scrape
		m = metric{kind: "gauge", name: literal(call.Args[0]), help: literal(call.Args[1])}
		m.labels = literals(call.Args[2])
	default:
		return metric{}, false, nil
	}
	if strings.HasSuffix(function.Sel.Name, "Vec") {
		m.labels = literals(call.Args[1])
	}
	if err == nil && (m.name == "" || m.help == "") {
		err = fmt.Errorf("write the name and the help of prometheus.%s as literals: documents are made of them", function.Sel.Name)
	}
	return m, true, err
}

func identifier(s *ast.SelectorExpr) (string, bool) {
	if s == nil {
		return "", false
	}
	x, ok := s.X.(*ast.Ident)
	if !ok {
		return "", false
	}
	return x.Name, true
}

func (m *metric) readOptions(arg ast.Expr) error {
	options, ok := arg.(*ast.CompositeLit)
	if !ok {
		return errors.New("give the options of a metric as a literal: documents are made of them")
	}
	for _, element := range options.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key := pair.Key.(*ast.Ident); key.Name {
		case "Name":
			m.name = literal(pair.Value)
		case "Help":
			m.help = literal(pair.Value)
		}
	}
	return nil
}

// literal returns the text of a literal, or of literals that are added to each other
// because a line would be too long, and "" for any other expression.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.BinaryExpr:
		if left, right := literal(e.X), literal(e.Y); left != "" && right != "" {
			return left + right
		}
	}
	return ""
}

func literals(e ast.Expr) (out []string) {
	list, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, element := range list.Elts {
		out = append(out, literal(element))
	}
	return out
}

func metricTable(metrics []metric) string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | what |\n|---|---|---|---|\n")
	for _, m := range metrics {
		var labels []string
		for _, l := range m.labels {
			labels = append(labels, "`"+l+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(labels, ", "), cell(text(m.help)))
	}
	return b.String()
}

// Marks of the generated part of a document.
const (
	beginMark = "<!-- Written by `make manifests` from the code, up to the next mark: do not edit. -->\n"
	endMark   = "<!-- End of what is written. -->\n"
)

func intoMarks(document, text string) (string, error) {
	before, rest, found := strings.Cut(document, beginMark)
	_, after, ended := strings.Cut(rest, endMark)
	if !found || !ended {
		return "", errors.New("the marks between which to write are missing")
	}
	return before + beginMark + "\n" + text + "\n" + endMark + after, nil
}
