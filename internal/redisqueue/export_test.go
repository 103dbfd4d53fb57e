package redisqueue

import "context"

// DueKey returns the Redis key of the due entries of a type. The methods of this file export private names of package
// redisqueue to its tests. The tests are in package redisqueue_test, because they use the conformance suite, which
// imports the root package and so package redisqueue.
func (q *Queue) DueKey(businessType string) string { return q.keys.dueKey(businessType) }

func (q *Queue) Whole(businessType string) string { return wholeMark(q.keys.dueKey(businessType)) }

func (q *Queue) OwnerKey(tag uint32) string { return q.keys.owner(tag) }

func (q *Queue) EvictionPolicy(ctx context.Context) string { return q.Evicts(ctx) }
