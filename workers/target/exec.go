// Package target provides handlers for those who write none: NewExec runs a command for each job,
// NewHTTP posts each job to a URL. A workers.Pool runs them, as it does any asynq.Handler.
//
// What a command or a server answers becomes what a handler returns: success with a result, an
// error to be retried, one that wraps asynq.SkipRetry where no attempt can succeed, or a
// *workers.ThrottledError.
package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

// ExecConfig says which command an exec target runs.
type ExecConfig struct {
	// Argv is the command and its arguments; no shell sees them. Argv[0] is looked up once, in the
	// worker's PATH or, where it has a slash, from the worker's directory. The other arguments may
	// hold placeholders:
	//
	//	{payload.FIELD}   a string, number or boolean of a JSON payload;
	//	                  {payload.a.b} reaches inside objects
	//	{FIELD}           the same, for short
	//	{job.id} {job.tenant} {job.attempt}
	//	{{NAME}}          the text {NAME}
	//
	// Braces around anything else are text. A value is always one argument, or a part of one. A
	// value that begins with '-' is refused unless the argument has text before it, as in
	// --file={name}. The command must itself be careful with what a value may mean to it: a URL, a
	// file elsewhere.
	Argv []string

	// Env are variables that the command gets besides PATH (the worker's, unless named here) and
	// SHAPER_JOB_ID, SHAPER_JOB_TENANT, SHAPER_JOB_DOWNSTREAM, SHAPER_JOB_TYPE, SHAPER_JOB_ATTEMPT
	// and SHAPER_JOB_SLOT (µs since the epoch); all but the id also under their old names, without
	// JOB_. It gets nothing else, not even HOME, where programs look for credentials. To enqueue a
	// next step it needs SHAPER_REDIS.
	Env map[string]string

	Dir           string        // where it runs; default: the worker's directory
	KillDelay     time.Duration // from SIGTERM to SIGKILL; default 2s
	ThrottleAfter time.Duration // how long exit status 75 pauses the tenant, 1ms to 24h; default 1s
}

// Exit statuses with a meaning, from sysexits.h.
const (
	exitUsage    = 64 // EX_USAGE: this job can never succeed
	exitDataErr  = 65 // EX_DATAERR: nor this one
	exitTempFail = 75 // EX_TEMPFAIL: slow down
)

// maxStderr is how much of stderr an error text repeats; together with what comes before it, that
// is at most 4 KiB.
const maxStderr = 4<<10 - 512

// execTarget is the handler behind NewExec.
type execTarget struct {
	path          string // absolute
	name          string // for messages
	args          []template
	env           []string
	dir           string
	killDelay     time.Duration
	throttleAfter time.Duration
	unheld        atomic.Bool // this system does not let a command be held until its slot
}

// NewExec returns a handler that runs a command for each job, or a *shaper.FieldError.
//
// The payload is the command's stdin, which it need not read. The exit status decides: 0 is
// success, and the start of stdout becomes the job's result. 75 is a *workers.ThrottledError. 64
// and 65 wrap asynq.SkipRetry, as does a payload that cannot fill the arguments. Anything else is
// an error to be retried, with the end of stderr in its text.
//
// The command leads a process group of its own. When the job's context ends, the group gets SIGTERM
// and, KillDelay later, SIGKILL; if the lease was lost it gets SIGKILL at once, since another
// worker may already run the job. From then on no exit status counts as success: many programs exit
// 0 on SIGTERM with their work undone. When the command exits, what is left of its group is killed.
// A process that leaves the group escapes that, but cannot hold the job. On Linux the command, not
// its children, is also killed when the worker dies.
//
// The handler is a workers.Preparer: on Linux a command is started before its slot, up to its first
// instruction, and held there by ptrace until the slot has come. A start is its release. Where that
// cannot be (on other systems, where a sandbox forbids it, or a command that gains rights by its
// exec) the command is started at the slot.
//
// Working directory, umask, resource limits and user are the worker's. Exec targets need Unix.
func NewExec(cfg ExecConfig) (asynq.Handler, error) {
	if !execSupported {
		return nil, fmt.Errorf("target.exec: %w on this system", errors.ErrUnsupported)
	}
	t := &execTarget{dir: cfg.Dir, killDelay: cfg.KillDelay, throttleAfter: cfg.ThrottleAfter}
	if t.killDelay == 0 {
		t.killDelay = 2 * time.Second
	}
	if t.throttleAfter == 0 {
		t.throttleAfter = time.Second
	}
	if t.killDelay < 0 {
		return nil, &shaper.FieldError{Field: "target.kill_delay", Value: t.killDelay.String(), Want: "a positive duration"}
	}
	if t.throttleAfter < time.Millisecond || t.throttleAfter > workers.MaxThrottle {
		return nil, &shaper.FieldError{Field: "target.throttle_after", Value: t.throttleAfter.String(), Want: "1ms to 24h"}
	}
	if err := t.setArgv(cfg.Argv); err != nil {
		return nil, err
	}
	if err := t.setEnv(cfg.Env); err != nil {
		return nil, err
	}
	if cfg.Dir != "" {
		if st, err := os.Stat(cfg.Dir); err != nil || !st.IsDir() {
			return nil, &shaper.FieldError{Field: "target.dir", Value: cfg.Dir, Want: "an existing directory"}
		}
	}
	return t, nil
}

// setArgv finds the command and parses its arguments.
func (t *execTarget) setArgv(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return &shaper.FieldError{Field: "target.exec", Want: "a command and its arguments"}
	}
	for i, arg := range argv {
		if strings.ContainsRune(arg, 0) {
			return badArg(arg, "arguments without NUL")
		}
		parsed, err := parseTemplate(arg)
		if err != nil {
			return err
		}
		if i == 0 && !parsed.fixed() {
			return badArg(arg, "a command without placeholders: no payload may choose what runs")
		}
		t.args = append(t.args, parsed)
	}
	path, err := exec.LookPath(argv[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return badArg(argv[0], "an executable file or a command on PATH")
	}
	t.path, t.name = path, cutHead(filepath.Base(argv[0]), 80)
	return nil
}

var (
	envNameRE   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	jobEnvNames = strings.Fields("ID TENANT DOWNSTREAM TYPE ATTEMPT SLOT") // after SHAPER_JOB_
)

// setEnv keeps the part of the environment that is the same for every job.
func (t *execTarget) setEnv(declared map[string]string) error {
	if _, ok := declared["PATH"]; !ok {
		t.env = append(t.env, "PATH="+os.Getenv("PATH"))
	}
	for name, value := range declared {
		bad := func(want string) error { // without the value, which may be a secret
			return &shaper.FieldError{Field: "target.env", Value: cutHead(name, 80), Want: want}
		}
		switch {
		case !envNameRE.MatchString(name):
			return bad("a name of letters, digits and '_'")
		case slices.ContainsFunc(jobEnvNames, func(n string) bool { return name == "SHAPER_JOB_"+n || name == "SHAPER_"+n && n != "ID" }):
			return bad("another name: this one describes the job")
		case strings.ContainsRune(value, 0):
			return bad("a value without NUL")
		}
		t.env = append(t.env, name+"="+value)
	}
	slices.Sort(t.env)
	t.env = slices.Clip(t.env) // each job appends to a copy
	return nil
}

// jobEnv returns the environment of one job.
func (t *execTarget) jobEnv(info workers.Info) []string {
	env := t.env
	for i, value := range []string{info.ID, info.Tenant, info.Downstream, info.Type, strconv.Itoa(info.Attempt), strconv.FormatInt(info.Slot.UnixMicro(), 10)} {
		env = append(env, "SHAPER_JOB_"+jobEnvNames[i]+"="+value)
		if i > 0 {
			env = append(env, "SHAPER_"+jobEnvNames[i]+"="+value) // as it was called before
		}
	}
	return env
}

// ProcessTask runs the command for task.
func (t *execTarget) ProcessTask(ctx context.Context, task *asynq.Task) error {
	r, err := t.prepare(ctx, task)
	if err != nil {
		return err
	}
	return t.outcome(ctx, r, r.do(ctx, nil))
}

// execRun is one run of the command.
type execRun struct {
	cmd         *exec.Cmd
	killDelay   time.Duration
	stdout      *headBuffer
	stderr      *tailBuffer
	interrupted bool
}

// do runs the command, behind a gate if there is one: see runGroup.
func (r *execRun) do(ctx context.Context, gate func() error) (err error) {
	r.interrupted, err = runGroup(ctx, r.cmd, r.killDelay, gate)
	return err
}

// prepare makes a run of task's payload, or says why there can be none.
func (t *execTarget) prepare(ctx context.Context, task *asynq.Task) (*execRun, error) {
	info, ok := workers.JobFrom(ctx)
	if !ok {
		return nil, errNoJob
	}
	args, err := expandAll(t.args, info, task.Payload())
	if err != nil {
		return nil, &hopelessError{cutHead(oneLine([]byte(t.name+": "+err.Error())), maxStderr)}
	}
	r := &execRun{killDelay: t.killDelay, stdout: &headBuffer{max: workers.MaxResult}, stderr: &tailBuffer{max: maxStderr}}
	r.cmd = &exec.Cmd{
		Path: t.path, Args: args, Env: t.jobEnv(info), Dir: t.dir,
		Stdin: bytes.NewReader(task.Payload()), Stdout: r.stdout, Stderr: r.stderr,
	}
	return r, nil
}

// outcome turns what came of a run into what becomes of the job. err says that there was none.
func (t *execTarget) outcome(ctx context.Context, r *execRun, err error) error {
	switch {
	case errors.Is(err, syscall.E2BIG):
		return &hopelessError{t.name + ": the payload makes the arguments too long"}
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: command, its interpreter or its directory not found: %w", t.name, err)
	case err != nil:
		return fmt.Errorf("%s: %w", t.name, err)
	}
	tail := ""
	if s := r.stderr.text(); s != "" {
		tail = ": " + s
	}
	if r.interrupted {
		return fmt.Errorf("%s: %w (%v)%s", t.name, context.Cause(ctx), r.cmd.ProcessState, tail)
	}
	err = t.statusError(r.cmd.ProcessState.ExitCode(), fmt.Sprintf("%s: %v%s", t.name, r.cmd.ProcessState, tail))
	if err == nil && len(r.stdout.buf) > 0 {
		workers.SetResult(ctx, r.stdout.buf)
	}
	return err
}

// statusError turns an exit status, -1 for a signal, into what became of the job; text describes it
// for people.
func (t *execTarget) statusError(status int, text string) error {
	switch status {
	case 0:
		return nil
	case exitTempFail:
		return workers.Throttled(t.throttleAfter, errors.New(text))
	case exitUsage, exitDataErr:
		return &hopelessError{text}
	default:
		return errors.New(text)
	}
}
