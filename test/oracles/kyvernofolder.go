package oracles

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// PolicyFolder returns each policy of a folder as a case. The requests about a policy are about the other objects of
// its folder and of the folders below it, as tests of policies have them. Files that cannot be read are left out.
func PolicyFolder(ctx context.Context, folder string) (out []*Case, err error) {
	files := map[string][]string{}
	err = filepath.WalkDir(folder, func(file string, _ fs.DirEntry, err error) error {
		if ext := filepath.Ext(file); err == nil && (ext == ".yaml" || ext == ".yml") {
			files[filepath.Dir(file)] = append(files[filepath.Dir(file)], file)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", folder, err)
	}
	for _, dir := range sortedKeys(files) {
		cases := readablePolicies(ctx, files[dir])
		if len(cases) == 0 {
			continue
		}
		var examples []object
		for _, other := range sortedKeys(files) {
			if other == dir || strings.HasPrefix(other, dir+string(filepath.Separator)) {
				examples = append(examples, readableExamples(ctx, files[other])...)
			}
		}
		for _, c := range cases {
			c.Examples = ofKinds(examples, c.Kinds)
		}
		out = append(out, cases...)
	}
	return out, nil
}

func readablePolicies(ctx context.Context, files []string) (out []*Case) {
	for _, file := range files {
		if cases, err := PolicyFiles(ctx, file); err == nil {
			out = append(out, cases...)
		}
	}
	return out
}

func readableExamples(ctx context.Context, files []string) (out []object) {
	for _, file := range files {
		cases, err := objectFile(ctx, file)
		if err == nil {
			out = append(out, cases...)
		}
	}
	return out
}

// ofKinds returns the objects of some kinds.
func ofKinds(objects []object, kinds []string) (out []object) {
	for _, o := range objects {
		for _, kind := range kinds {
			if o["kind"] == kind {
				out = append(out, o)
			}
		}
	}
	return out
}
