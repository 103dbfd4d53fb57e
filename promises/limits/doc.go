// Package limits tests what TypeConfig.Limit promises over all processes:
//
//   - In every period, at most as many starts are granted as the rate and the burst allow (G41).
//   - At most Limit.Concurrent entries hold a permit at the same time. When a process dies, its permits become free again (G41).
//   - Entries that wait for a permit spend no attempt and hold no lease. They do not delay entries of other keys.
package limits
