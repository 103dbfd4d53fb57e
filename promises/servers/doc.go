// Package servers tests the promises on different servers and sessions: what New detects and refuses (C1, C6),
// isolation levels, clocks, idle connections and privileges. It also covers deviating proxies and drivers, other
// databases, Redis Cluster, and a switchover of the primary.
package servers
