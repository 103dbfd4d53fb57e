// Package queueloss tests that Redis is only a hint: if Redis loses or repeats an entry, the entry still runs. See
// promise G10 in docs/reference/guarantees.md.
package queueloss
