package redisqueue

import "context"

// DueKey is in this file because the conformance suite imports the root package, and needs package redisqueue_test.
func (q *Queue) DueKey(businessType string) string { return q.keys.dueKey(businessType) }

func (q *Queue) Whole(businessType string) string { return wholeMark(q.keys.dueKey(businessType)) }

func (q *Queue) OwnerKey(tag uint32) string { return q.keys.owner(tag) }

func (q *Queue) EvictionPolicy(ctx context.Context) string { return q.Evicts(ctx) }
