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

// scriptCall is one script to run on one key. Scripts use KEYS[1] directly in each command, because proxies of managed
// Redis services parse a script to find its keys.
type scriptCall struct {
	script *redis.Script
	key    string
	args   []any
}

// maxPipeline limits the scripts of one pipeline, whose replies share one read timeout.
const maxPipeline = 100

// run returns the replies in order. A failed call has a nil reply, and its error is among the joined errors. All other
// calls have run.
func (q *Queue) run(ctx context.Context, calls []scriptCall) ([]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(calls) == 1 {
		reply, err := calls[0].script.Run(ctx, q.client, []string{calls[0].key}, calls[0].args...).Result()
		return []any{reply}, q.wrapError(ctx, err)
	}
	var replies []any
	var errs []error
	for chunk := range slices.Chunk(calls, maxPipeline) {
		chunkReplies, err := q.pipeline(ctx, chunk)
		replies = append(replies, chunkReplies...)
		errs = append(errs, err)
	}
	return replies, q.wrapError(ctx, errors.Join(errs...))
}

// pipeline sends the hash of each script instead of its source. If the server does not know the hash, the server
// answers NOSCRIPT. Then pipeline sends the source of this script.
func (q *Queue) pipeline(ctx context.Context, calls []scriptCall) ([]any, error) {
	cmds := q.sendAll(ctx, calls, (*redis.Script).EvalSha)
	var unknown []int
	var unloaded []scriptCall
	for i, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			unknown, unloaded = append(unknown, i), append(unloaded, calls[i])
		}
	}
	// Send the sources of the scripts whose hash the server did not know. The server has not run these scripts, so no
	// script runs twice.
	for i, cmd := range q.sendAll(ctx, unloaded, (*redis.Script).Eval) {
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
	_, _ = pipe.Exec(ctx) // each command holds its own error
	return cmds
}

// wrapError returns the error for the caller. On a cluster, it also reloads the slot map, which says which node has
// which keys. The error may come from a dead node, and with the old map the client would dial this node for seconds.
func (q *Queue) wrapError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cluster, ok := q.client.(*redis.ClusterClient); ok && ctx.Err() == nil {
		cluster.ReloadState(ctx)
	}
	return markRefusal(shownError(err))
}

// markRefusal marks an error by which Redis refuses this client, for example a wrong password. Retries do not help.
func markRefusal(err error) error {
	answer := answerOf(err)
	for _, refusal := range []string{"WRONGPASS", "NOAUTH", "NOPERM", "ERR invalid password", "ERR AUTH", "ERR Client sent AUTH",
		"ERR The user executing the script can't", "The user executing the script can't"} {
		if strings.HasPrefix(answer, refusal) {
			return fmt.Errorf("the client is refused: check its user, password and rights: %w", err)
		}
	}
	return err
}

// inScript matches what Redis before version 7 adds to the error of a command in a script.
var inScript = regexp.MustCompile(`^ERR Error running script \(call to f_[0-9a-f]+\): @user_script:\d+: (@user_script: \d+: )?-?`)

func answerOf(err error) string { return inScript.ReplaceAllString(err.Error(), "") }
