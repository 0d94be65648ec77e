package shaper

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"github.com/hibiken/asynq"
)

// maxWaitOpt is far from asynq's own option types.
const maxWaitOpt asynq.OptionType = 1 << 20

type maxWaitOption time.Duration

func (d maxWaitOption) String() string         { return fmt.Sprintf("MaxWait(%v)", time.Duration(d)) }
func (d maxWaitOption) Type() asynq.OptionType { return maxWaitOpt }
func (d maxWaitOption) Value() any             { return time.Duration(d) }

// MaxWait is an option of Client.Enqueue: the job expires unstarted once it has waited longer than
// d.
func MaxWait(d time.Duration) asynq.Option { return maxWaitOption(d) }

// insteadOf says what to use instead of asynq's options that have no meaning here.
var insteadOf = map[asynq.OptionType]string{
	asynq.QueueOpt:    "the tenant, an argument of Enqueue",
	asynq.UniqueOpt:   "TaskID: the same id is accepted once",
	asynq.DeadlineOpt: "Timeout for an attempt, MaxWait for the time until the first",
	asynq.GroupOpt:    "a job that stands for the group: jobs are not put together",
}

func specOf(tenant string, task *asynq.Task, opts []asynq.Option) (Spec, error) {
	if task == nil {
		return Spec{}, &FieldError{"task", "nil", "a task"}
	}
	if f := reflect.ValueOf(task).Elem().FieldByName("opts"); f.IsValid() && f.Kind() == reflect.Slice && f.Len() > 0 {
		return Spec{}, &FieldError{"task", task.Type(), "a task made without options: give them to Enqueue, which can read them"}
	}
	s := Spec{Tenant: tenant, Type: task.Type(), Payload: task.Payload(), Headers: task.Headers()}
	for _, o := range opts {
		taken := false
		switch o.Type() {
		case asynq.MaxRetryOpt:
			retries := 0
			if taken = take(o, &retries); retries < 0 {
				return Spec{}, &FieldError{"MaxRetry", fmt.Sprint(retries), "0 or more"}
			}
			s.MaxAttempts = retries + 1
		case asynq.TaskIDOpt:
			taken = take(o, &s.ID)
		case asynq.TimeoutOpt:
			taken = take(o, &s.Timeout)
		case asynq.ProcessInOpt:
			taken = take(o, &s.Delay)
		case asynq.ProcessAtOpt:
			taken = take(o, &s.At)
		case asynq.RetentionOpt:
			taken = take(o, &s.Retention)
		case maxWaitOpt:
			taken = take(o, &s.MaxWait)
		}
		if !taken {
			want := cmp.Or(insteadOf[o.Type()], "MaxRetry, Timeout, ProcessAt, ProcessIn, TaskID, Retention or MaxWait")
			return Spec{}, &FieldError{"option", o.String(), want}
		}
	}
	return s, nil
}

// take sets a field to the value of an option, if it is of its type.
func take[T any](o asynq.Option, field *T) (ok bool) {
	v, ok := o.Value().(T)
	if ok {
		*field = v
	}
	return ok
}
