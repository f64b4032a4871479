package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// show is one request of the demo, and what has to come of it.
type show struct {
	title   string
	action  string   // validationAction that the sample policy gets before the request; "" changes nothing
	args    []string // of kubectl
	want    outcome
	audited string // text that the audit log must contain
	says    string // what the outcome shows
}

// outcome is what kubectl has to print and return.
type outcome struct {
	exit   int
	stdout string
	// begins and holds are of the one line on stderr; without them it has to be empty.
	begins string
	holds  []string
}

// privileged names the sample policy whose effect the demo changes.
const privileged = "audit-privileged-pods"

// shows belong to config/samples: the policies' names and messages stand there.
func shows() []show {
	return []show{{
		title: "Asking for a pod without the label team",
		args:  []string{"run", "web", "--image=nginx:1.29"},
		want: outcome{
			exit:   1,
			begins: "Error from server (Forbidden): ",
			holds: []string{
				"denied the request: WebhookPolicy 'require-team-label'",
				": add the label team, with the name of the team that looks after this workload",
			},
		},
		says: "refused, with the message of the policy require-team-label",
	}, {
		title: "Asking for a pod whose image is not pinned",
		args:  []string{"run", "web", "--labels=team=shop", "--image=nginx:latest"},
		want: outcome{
			stdout: "pod/web created\n",
			begins: "Warning: ",
			holds: []string{
				"WebhookPolicy 'warn-latest-image'",
				": pin the image to a version or digest in web",
			},
		},
		says: "allowed, with a warning of the policy warn-latest-image",
	}, {
		title: "Asking for a pod that no policy objects to",
		args:  []string{"run", "api", "--labels=team=shop", "--image=nginx:1.29"},
		want:  outcome{stdout: "pod/api created\n"},
		says:  "allowed, without a warning",
	}, {
		title:   "Asking for a privileged pod: the policy " + privileged + " only audits",
		args:    privilegedPod("audited"),
		want:    outcome{stdout: "pod/audited created\n"},
		audited: "run the containers without securityContext.privileged",
		says:    "allowed, and recorded in the audit log",
	}, {
		title:  "Changing the policy from Audit to Warn",
		action: "Warn",
		args:   privilegedPod("warned"),
		want: outcome{
			stdout: "pod/warned created\n",
			begins: "Warning: ",
			holds:  []string{"WebhookPolicy '" + privileged + "'", ": run the containers without securityContext.privileged"},
		},
		says: "allowed, with a warning",
	}, {
		title:  "Changing the policy from Warn to Deny",
		action: "Deny",
		args:   privilegedPod("denied"),
		want: outcome{
			exit:   1,
			begins: "The pods \"denied\" is invalid: ",
			holds:  []string{"WebhookPolicy '" + privileged + "' with binding 'learn' denied request", ": run the containers without securityContext.privileged"},
		},
		says: "refused",
	}}
}

func privilegedPod(name string) []string {
	return []string{"run", name, "--labels=team=shop", "--image=nginx:1.29", "--privileged"}
}

// check says in what a result is not the outcome.
func (o outcome) check(r result) error {
	var errs []error
	if r.exit != o.exit {
		errs = append(errs, fmt.Errorf("exit status %d, not %d", r.exit, o.exit))
	}
	if r.stdout != o.stdout {
		errs = append(errs, fmt.Errorf("standard output %q, not %q", r.stdout, o.stdout))
	}
	line, ok := strings.CutSuffix(r.stderr, "\n")
	switch {
	case o.begins == "" && r.stderr != "":
		errs = append(errs, fmt.Errorf("standard error %q, not empty", r.stderr))
	case o.begins != "" && (!ok || strings.Contains(line, "\n") || !strings.HasPrefix(line, o.begins)):
		errs = append(errs, fmt.Errorf("standard error %q, not one line that begins with %q", r.stderr, o.begins))
	}
	for _, part := range o.holds {
		if !strings.Contains(line, part) {
			errs = append(errs, fmt.Errorf("standard error %q, without %q", r.stderr, part))
		}
	}
	return errors.Join(errs...)
}

const (
	effectTimeout = time.Minute
	effectEvery   = 200 * time.Millisecond
)

// await returns when the API server acts as the show says, seen by dry runs that
// it sends to the policies like any request: it learns of webhooks a moment after
// they were written.
func (s show) await(ctx context.Context, k kubectl) error {
	ctx, cancel := context.WithTimeoutCause(ctx, effectTimeout, fmt.Errorf("not seen within %s", effectTimeout))
	defer cancel()
	var last error
	for {
		r, err := k.run(ctx, append(slices.Clone(s.args), "--dry-run=server")...)
		if err == nil {
			r.stdout = strings.Replace(r.stdout, " (server dry run)\n", "\n", 1)
			if last = s.want.check(r); last == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for %q to be %s: %w", commandLine(s.args), s.says, context.Cause(ctx)), last)
		case <-time.After(effectEvery):
		}
	}
}

// prepare changes the effect of the sample policy.
func (s show) prepare(ctx context.Context, k kubectl, out io.Writer) error {
	if s.action == "" {
		return nil
	}
	args := []string{"patch", "webhookpolicy", privileged, "--type=merge",
		fmt.Sprintf(`--patch={"spec":{"bindings":[{"name":"learn","validationActions":[%q]}]}}`, s.action)}
	fmt.Fprintf(out, "\n$ %s\n", commandLine(args))
	return k.do(ctx, args)
}

// perform sends the request for real, and prints the command, kubectl's own
// output, and what that shows.
func (s show) perform(ctx context.Context, k kubectl, out io.Writer, auditLog string) error {
	r, err := k.run(ctx, s.args...)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n$ %s\n%s%s", commandLine(s.args), r.stderr, r.stdout)
	if err := s.want.check(r); err != nil {
		return fmt.Errorf("%q was not %s: %w", commandLine(s.args), s.says, err)
	}
	fmt.Fprintf(out, "# %s\n\n", s.says)
	if s.audited == "" {
		return nil
	}
	return s.awaitAudit(ctx, auditLog)
}

// awaitAudit waits until the audit log has the text.
func (s show) awaitAudit(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, effectTimeout, fmt.Errorf("not seen within %s", effectTimeout))
	defer cancel()
	for {
		log, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		if bytes.Contains(log, []byte(s.audited)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %q in the audit log: %w", s.audited, context.Cause(ctx))
		case <-time.After(effectEvery):
		}
	}
}
