// Package queueloss tests that Redis is only a hint (G10). Redis may lose data, restart, fall silent, evict keys, be used
// by another log or have a wrong clock. These faults of Redis may add latency, and must do no other harm.
package queueloss
