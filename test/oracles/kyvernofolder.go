package oracles

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// PolicyFolder returns each policy of a folder as a case, and why files could not be read. The requests about a policy are
// about the other objects of its folder and of the folders below it, as tests of policies have them.
func PolicyFolder(ctx context.Context, folder string) (cases []*Case, unread []error, err error) {
	policies, examples := map[string][]*Case{}, map[string][]object{}
	err = filepath.WalkDir(folder, func(file string, _ fs.DirEntry, err error) error {
		if ext := filepath.Ext(file); err != nil || ext != ".yaml" && ext != ".yml" {
			return err
		}
		found, err := PolicyFiles(ctx, file)
		if err != nil {
			unread = append(unread, err)
			return nil
		}
		objects, err := objectFile(ctx, file)
		dir := filepath.Dir(file)
		policies[dir], examples[dir] = append(policies[dir], found...), append(examples[dir], objects...)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", folder, err)
	}
	for _, dir := range sortedKeys(policies) {
		var beside []object
		for _, other := range sortedKeys(examples) {
			if other == dir || strings.HasPrefix(other, dir+string(filepath.Separator)) {
				beside = append(beside, examples[other]...)
			}
		}
		for _, c := range policies[dir] {
			c.Examples = ofKinds(beside, c.Kinds)
			cases = append(cases, c)
		}
	}
	return cases, unread, nil
}

// ofKinds returns the objects of some kinds.
func ofKinds(objects []object, kinds []string) (out []object) {
	for _, o := range objects {
		if kind, _ := o["kind"].(string); slices.Contains(kinds, kind) {
			out = append(out, o)
		}
	}
	return out
}
