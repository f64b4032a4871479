// Package load reads Kubernetes objects from files, directories, stdin, kustomizations and
// Helm charts. It bounds the size, the depth and the aliases of what it reads, and every
// error names the file, the line and the column.
package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

const (
	// maxFile and maxTotal are the maximum of bytes of one file and of all of them.
	maxFile, maxTotal = 100 << 20, 512 << 20
	// maxDocument is the maximum of bytes of one document.
	maxDocument = 32 << 20
	// maxFiles is the maximum number of files in directories.
	maxFiles = 100_000
)

// Stdin is the path of stdin.
const Stdin = "-"

// Options configures Objects.
type Options struct {
	// Stdin is read for the path "-"; nil means that there is none.
	Stdin io.Reader
	// Select reports whether to read a file of a directory; nil selects all,
	// kustomizations and charts included.
	Select func(text []byte) bool
	// Plain reports whether the files of a directory are read although its name begins with
	// a dot, or although it is a kustomization or a chart; nil is for none.
	Plain func(directory string) bool
	// MaxFile is the maximum of bytes of a file of a directory; 0 is that of a file that a path
	// names.
	MaxFile int64
	// Root bounds the paths; "" does not.
	Root Root
	// AllowRemote permits kustomizations to fetch files and repositories.
	AllowRemote bool
	// Untyped is called for a document with neither apiVersion nor kind, one call at a time
	// and in the order of the documents. It returns what to read instead, or nil to skip the
	// document. If Untyped is nil, such a document is an error.
	Untyped func(at Position, raw []byte) []byte
	// Skip is called for each file, kustomization, chart, document and item of a list that
	// cannot be read, one call at a time, and Objects returns all others. If Skip is nil, the
	// first of them is the error of Objects. Paths that do not exist are always an error.
	Skip func(error)
}

// Objects reads all objects of some paths: files, directories with all of their files,
// kustomizations, Helm charts, and stdin as "-". The objects are in the order of paths and
// names of files, and lists are replaced by their items.
func Objects(ctx context.Context, paths []string, o Options) ([]Object, error) {
	var documents []*document
	l := loader{options: o}
	for _, path := range paths {
		if err := l.path(ctx, path); err != nil {
			return nil, err
		}
	}
	for _, f := range l.files {
		found, problem := split(f.name, f.text)
		if err := l.skip(ctx, problem); err != nil {
			return nil, err
		}
		documents = append(documents, found...)
	}
	objects, problems, err := convert(ctx, documents, o.Untyped)
	for _, problem := range problems {
		err = errors.Join(err, l.skip(ctx, problem))
		if err != nil {
			return nil, err
		}
	}
	return objects, err
}

// Text reads the objects of a text. The name is that of a file in positions.
func Text(ctx context.Context, name string, text []byte) ([]Object, error) {
	documents, err := split(name, text)
	if err != nil {
		return nil, err
	}
	objects, problems, err := convert(ctx, documents, nil)
	if err == nil && len(problems) > 0 {
		err = problems[0]
	}
	if err != nil {
		return nil, err
	}
	return objects, nil
}

// file is the content of one file, or the output of one program.
type file struct {
	name string
	text []byte
}

type loader struct {
	options Options
	files   []file
	skipped int
	total   int64
	stdin   bool // stdin has been read
}

// errTooMuch means that the files together are too large.
var errTooMuch = fmt.Errorf("all files together are larger than %d MiB: name fewer of them", maxTotal>>20)

// skip returns an error that ends the reading; nil for one with which the rest goes on.
func (l *loader) skip(ctx context.Context, err error) error {
	if err == nil || l.options.Skip == nil || errors.Is(err, errTooMuch) || errors.Is(err, fs.SkipDir) || ctx.Err() != nil {
		return err
	}
	l.skipped++
	l.options.Skip(err)
	return nil
}

func (l *loader) path(ctx context.Context, path string) error {
	if path == Stdin {
		return l.readStdin()
	}
	info, err := l.options.stat(path)
	var refused *Error
	switch {
	case errors.As(err, &refused):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Position: Position{File: path}, Text: "no such file or directory"}
	case err != nil:
		return fmt.Errorf("reading %s: %w", path, err)
	case info.IsDir():
		return l.directory(ctx, path)
	}
	return l.skip(ctx, l.file(path))
}

func (l *loader) readStdin() error {
	if l.options.Stdin == nil || l.stdin {
		return &Error{Position: Position{File: "stdin"}, Text: `there is no input left: name "-" once`}
	}
	l.stdin = true
	return l.read("stdin", l.options.Stdin)
}

// stat returns what is at a path.
func (o *Options) stat(path string) (fs.FileInfo, error) {
	if o.Root != "" {
		return o.Root.stat(path)
	}
	return os.Stat(path)
}

// open opens a file. A pipe is one only if the user names it.
func (o *Options) open(path string) (*os.File, error) {
	if o.Root != "" {
		return o.Root.open(path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && info.Mode()&fs.ModeNamedPipe == 0 {
		return nil, &Error{Position: Position{File: path}, Text: "not a file: name a file, a directory or - for stdin"}
	}
	return os.Open(path) //nolint:gosec // the user names it
}

func (l *loader) file(path string) error {
	f, err := l.options.open(path)
	var refused *Error
	if errors.As(err, &refused) {
		return err
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	return l.read(path, f)
}

// read reads one input up to the limits.
func (l *loader) read(name string, from io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return l.add(name, text)
}

func (l *loader) add(name string, text []byte) error {
	if len(text) > maxFile {
		return &Error{Position: Position{File: name}, Text: fmt.Sprintf("larger than %d MiB: split it", maxFile>>20)}
	}
	if l.total += int64(len(text)); l.total > maxTotal {
		return fmt.Errorf("%s: %w", name, errTooMuch)
	}
	l.files = append(l.files, file{name: name, text: text})
	return nil
}

// directory reads the YAML and JSON files of a directory and of those within, or renders
// it if it is a kustomization or a Helm chart.
func (l *loader) directory(ctx context.Context, root string) error {
	before := len(l.files) + l.skipped
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return l.skip(ctx, fmt.Errorf("reading %s: %w", path, err))
		case ctx.Err() != nil:
			return ctx.Err()
		case entry.IsDir():
			return l.enter(ctx, path, path != root && strings.HasPrefix(entry.Name(), "."))
		case entry.Type()&fs.ModeSymlink != 0 && IsManifest(path) && !isHidden(entry.Name()) && l.options.Root == "":
			return l.skip(ctx, l.link(root, path)) // hidden ones are locks of editors
		case !entry.Type().IsRegular() || !IsManifest(path):
			return nil
		case len(l.files) >= maxFiles:
			return &Error{Position: Position{File: root}, Text: fmt.Sprintf("more than %d files", maxFiles)}
		}
		return l.skip(ctx, l.fileOfDirectory(path))
	})
	if err == nil && len(l.files)+l.skipped == before && l.options.Select == nil {
		return &Error{Position: Position{File: root}, Text: "the directory has no .yaml, .yml or .json file"}
	}
	return err
}

// enter decides whether the files of a directory are read. It returns fs.SkipDir if not.
func (l *loader) enter(ctx context.Context, path string, hidden bool) error {
	switch {
	case (hidden || l.options.Select == nil) && l.options.Plain != nil && l.options.Plain(path):
		return nil
	case hidden:
		return fs.SkipDir
	case l.options.Select == nil:
		return l.rendered(ctx, path)
	}
	return nil
}

// link reads the file of a link, unless the directory has it under another name.
func (l *loader) link(directory, path string) error {
	folder, err := filepath.EvalSymlinks(directory)
	if err != nil {
		return fmt.Errorf("reading %s: %w", directory, err)
	}
	name := ""
	target, err := filepath.EvalSymlinks(path)
	if err == nil {
		name, err = filepath.Rel(folder, target)
	}
	if err != nil || !filepath.IsLocal(name) {
		return &Error{
			Position: Position{File: path},
			Text:     "the link leads to no file of the directory: replace it with the file, or remove it",
		}
	}
	if info, err := os.Stat(target); err != nil || !info.Mode().IsRegular() || IsManifest(name) && !isHidden(name) {
		return nil //nolint:nilerr // the target has just been found
	}
	return l.fileOfDirectory(path)
}

// isHidden reports whether a part of a path begins with a dot.
func isHidden(path string) bool {
	return slices.ContainsFunc(
		strings.Split(path, string(filepath.Separator)),
		func(name string) bool { return strings.HasPrefix(name, ".") },
	)
}

// fileOfDirectory reads a file if it is selected.
func (l *loader) fileOfDirectory(path string) error {
	if info, err := l.options.stat(path); err == nil && l.options.MaxFile > 0 && info.Size() > l.options.MaxFile {
		return &Error{
			Position: Position{File: path},
			Text: fmt.Sprintf("larger than %d KiB, as no policy is: split it, or name the file itself",
				l.options.MaxFile>>10),
		}
	}
	if err := l.file(path); err != nil || l.options.Select == nil {
		return err
	}
	last := len(l.files) - 1
	if !l.options.Select(l.files[last].text) {
		l.total -= int64(len(l.files[last].text))
		l.files = l.files[:last]
	}
	return nil
}

// rendered renders a directory that a program renders, and skips its files. Otherwise it
// does nothing.
func (l *loader) rendered(ctx context.Context, path string) error {
	r, ok := rendererOf(path)
	if !ok {
		return nil
	}
	if err := l.skip(ctx, l.render(ctx, r, path)); err != nil {
		return err
	}
	return fs.SkipDir
}

func (l *loader) render(ctx context.Context, r renderer, path string) error {
	if err := r.check(path, l.options); err != nil {
		return err
	}
	text, err := r.run(ctx, path, l.options.AllowRemote)
	if err != nil {
		return err
	}
	return l.add(path, text)
}

// IsManifest reports whether the name of a file is that of YAML or JSON.
func IsManifest(path string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path)))
}

// convert converts documents concurrently, then those without a type in their order. The
// problems are those of documents and items that are left out.
func convert(
	ctx context.Context,
	documents []*document,
	untyped func(Position, []byte) []byte,
) (objects []Object, problems []error, err error) {
	converted := make([]content, len(documents))
	without := make([][]byte, len(documents))
	workers := runtime.GOMAXPROCS(0)
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			for i := worker; i < len(documents) && ctx.Err() == nil; i += workers {
				raw, err := documents[i].toJSON()
				if err == nil && untyped != nil && isUntyped(raw) {
					without[i] = raw
					continue
				}
				converted[i] = documents[i].content(raw, err)
			}
		})
	}
	running.Wait()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	for i, d := range documents {
		if raw := without[i]; raw != nil {
			converted[i] = d.content(untyped(d.at(1, 1), raw), nil)
		}
		objects = append(objects, converted[i].objects...)
		problems = append(problems, converted[i].problems...)
	}
	return objects, problems, nil
}

// content is what a document contains: nothing for an empty one.
type content struct {
	objects  []Object
	problems []error
}

// content returns the objects of a document in JSON.
func (d *document) content(raw []byte, err error) (c content) {
	if raw == nil || err != nil {
		c.problem(err)
		return c
	}
	o, err := newObject(d, raw, nil)
	if err != nil {
		c.problem(err)
		return c
	}
	c.expand(o)
	return c
}

func (c *content) problem(err error) {
	if err != nil {
		c.problems = append(c.problems, err)
	}
}

// isUntyped reports whether a document is a map with neither apiVersion nor kind.
func isUntyped(raw []byte) bool {
	var has struct {
		APIVersion, Kind any
	}
	return json.Unmarshal(raw, &has) == nil && has.APIVersion == nil && has.Kind == nil
}
