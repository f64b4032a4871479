package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// file is one file of an archive.
type file struct {
	name    string
	mode    fs.FileMode
	content []byte
}

// pack returns the archive of a platform.
func pack(p platform, files []file, modified time.Time) ([]byte, error) {
	write := writeTar
	if p.os == "windows" {
		write = writeZip
	}
	var out bytes.Buffer
	if err := write(&out, files, modified); err != nil {
		return nil, fmt.Errorf("writing the archive: %w", err)
	}
	return out.Bytes(), nil
}

func writeTar(out *bytes.Buffer, files []file, modified time.Time) error {
	compressed := gzip.NewWriter(out)
	w := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: modified, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), compressed.Close())
}

func writeZip(out *bytes.Buffer, files []file, modified time.Time) error {
	w := zip.NewWriter(out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: modified}
		header.SetMode(f.mode)
		part, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := part.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
}
