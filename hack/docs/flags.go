package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ostiary/ostiary/internal/options"
)

// managerFlags are those of the manager, in the order of their names.
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
	b.WriteString("What is wrong with a flag is said in one line, and nothing starts. In the Helm chart each is a value of `manager`,\nin camel case: see [Values of the Helm chart](values.md).\n\n")
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	for _, f := range flags {
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", f.Name, quoted(defaultOf(f)), cell(text(f.Usage)))
	}
	return b.String()
}

// defaultOf is what a flag is where nobody sets it, "" if that is nothing or
// stands in the flag's description.
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
