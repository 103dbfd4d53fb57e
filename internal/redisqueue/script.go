package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// scriptCall is one script to run on one key. Scripts name it KEYS[1] in each command, and nowhere else: proxies of managed
// Redis read a script before they pass it on, and refuse one whose keys they cannot tell.
type scriptCall struct {
	script *redis.Script
	key    string
	args   []any
}

// maxPipeline bounds how many scripts wait for one another's replies, which share one read timeout.
const maxPipeline = 100

// run sends the calls and returns their replies in order. A call that failed has a nil reply and its error
// among those joined; the others ran.
func (q *Queue) run(ctx context.Context, calls []scriptCall) ([]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(calls) == 1 {
		reply, err := calls[0].script.Run(ctx, q.client, []string{calls[0].key}, calls[0].args...).Result()
		return []any{reply}, q.failed(ctx, err)
	}
	var replies []any
	var errs []error
	for chunk := range slices.Chunk(calls, maxPipeline) {
		some, err := q.pipeline(ctx, chunk)
		replies = append(replies, some...)
		errs = append(errs, err)
	}
	return replies, q.failed(ctx, errors.Join(errs...))
}

// pipeline names scripts by their hash. A server that does not know one, after a restart, a failover or
// SCRIPT FLUSH, says so without running it, and is sent the source.
func (q *Queue) pipeline(ctx context.Context, calls []scriptCall) ([]any, error) {
	cmds := q.sendAll(ctx, calls, (*redis.Script).EvalSha)
	var unknown []int
	var again []scriptCall
	for i, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			unknown, again = append(unknown, i), append(again, calls[i])
		}
	}
	// The script has not run, so this is no second time.
	for i, cmd := range q.sendAll(ctx, again, (*redis.Script).Eval) {
		cmds[unknown[i]] = cmd
	}
	replies := make([]any, len(cmds))
	var errs []error
	for i, cmd := range cmds {
		reply, err := cmd.Result()
		if err == nil {
			replies[i] = reply
		} else if !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) {
			errs = append(errs, err)
		}
	}
	return replies, errors.Join(errs...)
}

type evalScript func(s *redis.Script, ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

func (q *Queue) sendAll(ctx context.Context, calls []scriptCall, eval evalScript) []*redis.Cmd {
	if len(calls) == 0 {
		return nil
	}
	pipe := q.client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, call := range calls {
		cmds[i] = eval(call.script, ctx, pipe, []string{call.key}, call.args...)
	}
	_, _ = pipe.Exec(ctx) // every command carries its own error
	return cmds
}

// failed prepares an error for the caller. In a cluster it also asks for a fresh map of the slots: by itself
// the client would go on dialling a dead node until the next reload, seconds later.
func (q *Queue) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cluster, ok := q.client.(*redis.ClusterClient); ok && ctx.Err() == nil {
		cluster.ReloadState(ctx)
	}
	return named(shownError(err))
}

// named tells a Redis that refuses this client from one that is away: waiting does not mend it.
func named(err error) error {
	answer := answerOf(err)
	for _, refusal := range []string{"WRONGPASS", "NOAUTH", "NOPERM", "ERR invalid password", "ERR AUTH", "ERR Client sent AUTH",
		"ERR The user executing the script can't", "The user executing the script can't"} {
		if strings.HasPrefix(answer, refusal) {
			return fmt.Errorf("the client is refused; check its user, its password and its rights: %w", err)
		}
	}
	return err
}

// inScript is how Redis before version 7 begins the error of a script in which a command has failed.
var inScript = regexp.MustCompile(`^ERR Error running script \(call to f_[0-9a-f]+\): @user_script:\d+: (@user_script: \d+: )?-?`)

// answerOf returns an error's text as the command has answered that failed, inside a script, too.
func answerOf(err error) string { return inScript.ReplaceAllString(err.Error(), "") }
