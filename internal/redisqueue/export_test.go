package redisqueue

import "context"

// The conformance suite imports the root package, so the tests that run it live outside.

// DueKey is the key under which the entries of a type wait.
func (q *Queue) DueKey(businessType string) string { return q.keys.due(businessType) }

// Whole is the member that says that a type has lost none.
func (q *Queue) Whole(businessType string) string { return wholeMark(q.keys.due(businessType)) }

// EpochKey is the key whose loss says that Redis has lost the rest.
func (q *Queue) EpochKey() string { return q.keys.epoch(0) }

// OwnerKey is the key that says which database a hash tag's keys belong to.
func (q *Queue) OwnerKey(tag uint32) string { return q.keys.owner(tag) }

func (q *Queue) EvictionPolicy(ctx context.Context) string { return q.Evicts(ctx) }
