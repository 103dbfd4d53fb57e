package redisqueue

import "context"

// The conformance suite imports the root package, so the tests that run it are in package redisqueue_test. These
// methods show them the names of keys.

// DueKey returns the key of the zset with a type's entries.
func (q *Queue) DueKey(businessType string) string { return q.keys.dueKey(businessType) }

// Whole returns the member which says that the queue has lost no entry of a type.
func (q *Queue) Whole(businessType string) string { return wholeMark(q.keys.dueKey(businessType)) }

// OwnerKey returns the key that names the database to which the keys of a hash tag belong.
func (q *Queue) OwnerKey(tag uint32) string { return q.keys.owner(tag) }

func (q *Queue) EvictionPolicy(ctx context.Context) string { return q.Evicts(ctx) }
