package cluster

import (
	"context"
	"io"

	"github.com/ostiary/ostiary/internal/cli/doctor"
	"github.com/ostiary/ostiary/internal/load"
)

// Read returns the state of a cluster in files.
func Read(ctx context.Context, files []string, stdin io.Reader) (*doctor.Dump, error) {
	objects, err := load.Objects(ctx, files, load.Options{Stdin: stdin})
	if err != nil {
		return nil, err
	}
	d := &doctor.Dump{}
	for i := range objects {
		if err := d.Add(objects[i].GroupVersionKind(), objects[i].Raw); err != nil {
			return nil, objects[i].Errorf("", "%v", err)
		}
	}
	return d, nil
}
