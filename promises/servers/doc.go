// Package servers holds the promises against what servers and sessions are like: what New finds out and refuses (C1, C6),
// isolation levels, clocks, idle connections, rights, lying proxies and drivers, other databases, Redis Cluster, and a
// primary that is switched over.
package servers
