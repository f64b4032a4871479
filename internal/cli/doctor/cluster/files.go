package cluster

import (
	"context"
	"io"

	"github.com/ostiary/ostiary/internal/cli/doctor"
	"github.com/ostiary/ostiary/internal/load"
)

// Read returns the state of a cluster in files. It calls skip for what it cannot read.
func Read(ctx context.Context, files []string, stdin io.Reader, skip func(error)) (*doctor.Dump, error) {
	objects, err := load.Objects(ctx, files, load.Options{Stdin: stdin, Skip: skip})
	if err != nil {
		return nil, err
	}
	d := &doctor.Dump{}
	for i := range objects {
		if err := d.Add(objects[i].GroupVersionKind(), objects[i].Raw); err != nil {
			skip(objects[i].Errorf("", "%v", err))
		}
	}
	return d, nil
}
