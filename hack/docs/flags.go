package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ostiary/ostiary/internal/options"
)

// managerFlags returns the flags of the manager, sorted by name.
func managerFlags() []*pflag.Flag {
	var o options.Options
	set := pflag.NewFlagSet("ostiary", pflag.ContinueOnError)
	o.Bind(set)
	var out []*pflag.Flag
	set.VisitAll(func(f *pflag.Flag) { out = append(out, f) })
	return out
}

func flagReference(flags []*pflag.Flag) string {
	var b strings.Builder
	b.WriteString("# Flags of the manager\n\n<!-- Written by `make manifests` from the code: do not edit. -->\n\n")
	b.WriteString("An invalid flag prints a one-line error and the manager exits with status 1. In the Helm chart each flag is a value of\n`manager`, in camel case: see [Values of the Helm chart](values.md).\n\n")
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	for _, f := range flags {
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", f.Name, quoted(defaultOf(f)), cell(text(f.Usage)))
	}
	return b.String()
}

// defaultOf returns the default of a flag, "" if it is empty or is part of the
// description.
func defaultOf(f *pflag.Flag) string {
	switch f.DefValue {
	case "[]", "0s":
		return ""
	}
	return f.DefValue
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
