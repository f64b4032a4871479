package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const (
	directoryPattern = "ostiary-controlplane-*"
	ownerFile        = "owner.lock"
	homeFolder       = "home"
	dataFolder       = "etcd"
	logFolder        = "logs"
)

// directory has all files of one control plane. Its owner holds a lock on a file in it. The
// kernel releases the lock when the owner is killed. The next control plane with the same
// parent then removes the directory.
type directory struct {
	path string
	lock *os.File
}

func newDirectory(parent string) (*directory, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	removeAbandoned(parent)
	path, err := os.MkdirTemp(parent, directoryPattern)
	if err != nil {
		return nil, fmt.Errorf("making the temporary directory: %w", err)
	}
	d := &directory{path: path}
	if err := d.create(); err != nil {
		_ = d.remove() // the first error is more useful
		return nil, fmt.Errorf("making the temporary directory: %w", err)
	}
	return d, nil
}

// create creates the folders and takes the lock. The locked file gets its name last, so that
// no other process considers the directory abandoned.
func (d *directory) create() (err error) {
	for _, folder := range []string{homeFolder, dataFolder, logFolder} {
		if err := os.Mkdir(d.file(folder), 0o700); err != nil {
			return err
		}
	}
	if d.lock, err = os.Create(d.file(ownerFile + ".new")); err != nil {
		return err
	}
	if err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	return os.Rename(d.lock.Name(), d.file(ownerFile))
}

func (d *directory) file(name string) string { return filepath.Join(d.path, name) }

func (d *directory) remove() error {
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("removing the temporary directory: %w", err)
	}
	if d.lock != nil {
		d.lock.Close()
	}
	return nil
}

// removeAbandoned removes the directories of killed owners, if it has the permission.
func removeAbandoned(parent string) {
	directories, err := filepath.Glob(filepath.Join(parent, directoryPattern))
	if err != nil {
		return
	}
	for _, path := range directories {
		lock, err := os.OpenFile(filepath.Join(path, ownerFile), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(path)
		}
		lock.Close()
	}
}
