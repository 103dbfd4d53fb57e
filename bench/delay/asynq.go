package delay

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// asynqQueue uses github.com/hibiken/asynq as its README shows it, with Concurrency 10. All other settings keep their
// defaults: asynq polls scheduled tasks every 5 s and a dead process's tasks every minute.
type asynqQueue struct{}

const asynqType = "order:close"

func (asynqQueue) prepare(tb testing.TB) (place, error) { return newRedis(tb) }

func (asynqQueue) serve(_ context.Context, p place, fire fire) (record, error) {
	at := asynq.RedisClientOpt{Addr: p.Redis}
	mux := asynq.NewServeMux()
	mux.HandleFunc(asynqType, func(_ context.Context, task *asynq.Task) error {
		n, err := strconv.Atoi(string(task.Payload()))
		must(err)
		fire(n, 0)
		return nil
	})
	if err := asynq.NewServer(at, asynq.Config{Concurrency: 10}).Start(mux); err != nil {
		return nil, err
	}
	client := asynq.NewClient(at)
	return func(ctx context.Context, n int, delay time.Duration) error {
		_, err := client.EnqueueContext(ctx, asynq.NewTask(asynqType, []byte(strconv.Itoa(n))), asynq.ProcessIn(delay))
		return err
	}, nil
}

func (asynqQueue) unfinished(_ context.Context, p place) (numbers []int, err error) {
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: p.Redis})
	defer inspector.Close()
	for _, list := range []func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
		inspector.ListScheduledTasks, inspector.ListPendingTasks, inspector.ListActiveTasks, inspector.ListRetryTasks, inspector.ListArchivedTasks,
	} {
		tasks, err := list("default", asynq.PageSize(1_000_000))
		if err != nil {
			return nil, err
		}
		for _, task := range tasks {
			n, err := strconv.Atoi(string(task.Payload))
			if err != nil {
				return nil, err
			}
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}
