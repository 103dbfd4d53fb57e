// Package queueloss holds that Redis is a hint (G10): lost, restarted, silent, evicted, taken over or set in time, it costs
// latency and nothing else.
package queueloss
