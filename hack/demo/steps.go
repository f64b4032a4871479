package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// step is one request of the demo with its expected result.
type step struct {
	title   string
	action  string   // validationAction that the sample policy gets before the request; "" changes nothing
	args    []string // of kubectl
	want    outcome
	audited string // text that the audit log must contain
	reads   bool   // the command changes nothing, and its result does not change
	result  string // description of the expected outcome
}

// outcome is the expected exit status and output of kubectl.
type outcome struct {
	exit   int
	stdout string
	// stdoutParts are parts of the standard output, instead of all of it.
	stdoutParts []string
	// prefix and parts describe the one line on stderr. If they are empty, stderr must be empty.
	prefix string
	parts  []string
}

// privileged names the sample policy whose effect the demo changes.
const privileged = "audit-privileged-pods"

// steps returns the steps of the demo. The names and messages are those of config/samples.
func steps() []step {
	return []step{{
		title: "Creating a Pod without the label team",
		args:  []string{"run", "web", "--image=nginx:1.29"},
		want: outcome{
			exit:   1,
			prefix: "Error from server (Forbidden): ",
			parts: []string{
				"denied the request: WebhookPolicy 'require-team-label'",
				": add the label team, with the name of the team that looks after this workload",
			},
		},
		result: "denied with the message of the policy require-team-label",
	}, {
		title: "Creating a Pod whose image is not pinned",
		args:  []string{"run", "web", "--labels=team=shop", "--image=nginx:latest"},
		want: outcome{
			stdout: "pod/web created\n",
			prefix: "Warning: ",
			parts: []string{
				"WebhookPolicy 'warn-latest-image'",
				": pin the image to a version or digest in web",
			},
		},
		result: "allowed with a warning of the policy warn-latest-image",
	}, {
		title:  "Creating a Pod that satisfies every policy",
		args:   []string{"run", "api", "--labels=team=shop", "--image=nginx:1.29"},
		want:   outcome{stdout: "pod/api created\n"},
		result: "allowed without a warning",
	}, {
		title:   "Creating a privileged Pod: the policy " + privileged + " only audits",
		args:    privilegedPod("audited"),
		want:    outcome{stdout: "pod/audited created\n"},
		audited: "run the containers without securityContext.privileged",
		result:  "allowed and recorded in the audit log",
	}, {
		title:  "Changing the policy from Audit to Warn",
		action: "Warn",
		args:   privilegedPod("warned"),
		want: outcome{
			stdout: "pod/warned created\n",
			prefix: "Warning: ",
			parts:  []string{"WebhookPolicy '" + privileged + "'", ": run the containers without securityContext.privileged"},
		},
		result: "allowed with a warning",
	}, {
		title:  "Changing the policy from Warn to Deny",
		action: "Deny",
		args:   privilegedPod("denied"),
		want: outcome{
			exit:   1,
			prefix: "The pods \"denied\" is invalid: ",
			parts: []string{
				"WebhookPolicy '" + privileged + "' with binding 'learn' denied request",
				": run the containers without securityContext.privileged",
			},
		},
		result: "denied",
	}, {
		title: "Asking which validation has this message",
		args:  []string{"ostiary", "explain", "--denial", denialOfPrivileged},
		want: outcome{stdoutParts: []string{
			privileged + ", binding learn\n", "  spec.validations[0]: ", "!c.?securityContext.?privileged.orValue(false)",
		}},
		result: "explained: the first validation of the policy has this message",
		reads:  true,
	}, {
		title: "Finding the objects from the time before the policy require-team-label",
		args:  []string{"ostiary", "violations", "--policy", "require-team-label"},
		want: outcome{
			exit: 1, prefix: "1 violation", parts: []string{"violation"},
			stdoutParts: []string{"require-team-label   default     Pod/before   1 ", "add the label team"},
		},
		result: "found: the Pod from before the policies would be denied today",
		reads:  true,
	}}
}

const denialOfPrivileged = "WebhookPolicy '" + privileged + "' with binding 'learn' denied request: " +
	"run the containers without securityContext.privileged"

func privilegedPod(name string) []string {
	return []string{"run", name, "--labels=team=shop", "--image=nginx:1.29", "--privileged"}
}

// check returns the differences between the outcome and a result.
func (o outcome) check(r result) error {
	var errs []error
	if r.exit != o.exit {
		errs = append(errs, fmt.Errorf("exit status %d, not %d", r.exit, o.exit))
	}
	for _, part := range o.stdoutParts {
		if !strings.Contains(r.stdout, part) {
			errs = append(errs, fmt.Errorf("standard output %q, without %q", r.stdout, part))
		}
	}
	if len(o.stdoutParts) == 0 && r.stdout != o.stdout {
		errs = append(errs, fmt.Errorf("standard output %q, not %q", r.stdout, o.stdout))
	}
	line, ok := strings.CutSuffix(r.stderr, "\n")
	switch {
	case o.prefix == "" && r.stderr != "":
		errs = append(errs, fmt.Errorf("standard error %q, not empty", r.stderr))
	case o.prefix != "" && (!ok || strings.Contains(line, "\n") || !strings.HasPrefix(line, o.prefix)):
		errs = append(errs, fmt.Errorf("standard error %q, not one line that begins with %q", r.stderr, o.prefix))
	}
	for _, part := range o.parts {
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

// await sends dry runs until their result is the expected one: API servers use a webhook
// a moment after it has been written.
func (s step) await(ctx context.Context, k kubectl) error {
	if s.reads {
		return nil
	}
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
			return errors.Join(fmt.Errorf("waiting for %q to be %s: %w", commandLine(s.args), s.result, context.Cause(ctx)), last)
		case <-time.After(effectEvery):
		}
	}
}

// setAction changes the effect of the sample policy.
func (s step) setAction(ctx context.Context, k kubectl, p progress) error {
	if s.action == "" {
		return nil
	}
	args := []string{"patch", "webhookpolicy", privileged, "--type=merge",
		fmt.Sprintf(`--patch={"spec":{"bindings":[{"name":"learn","validationActions":[%q]}]}}`, s.action)}
	p.command(args)
	return k.do(ctx, args)
}

// run sends the request without dry run, and prints the command, the output of kubectl
// and the result.
func (s step) run(ctx context.Context, k kubectl, p progress, auditLog string) error {
	r, err := k.run(ctx, s.args...)
	if err != nil {
		return err
	}
	p.command(s.args)
	if err := s.want.check(r); err != nil {
		return fmt.Errorf("%q was not %s: %w", commandLine(s.args), s.result, err)
	}
	p.result(r, s.result)
	if s.audited == "" {
		return nil
	}
	return s.awaitAudit(ctx, auditLog)
}

// awaitAudit waits until the audit log has the text.
func (s step) awaitAudit(ctx context.Context, file string) error {
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
