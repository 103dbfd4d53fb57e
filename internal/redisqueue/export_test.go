package redisqueue

import "context"

// The conformance suite imports the root package, so the tests that run it live outside.

func (q *Queue) EvictionPolicy(ctx context.Context) string { return q.Evicts(ctx) }
