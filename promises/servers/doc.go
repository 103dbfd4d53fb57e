// Package servers tests the promises on different servers and sessions:
//
//   - deviations from the conditions C1 (commits are kept) and C6 (all tables can roll back); New detects and refuses them
//   - isolation levels, clocks, idle connections and privileges
//   - proxies and drivers that deviate from MySQL
//   - logs in other databases, Redis Cluster, and a switchover from one primary to another
package servers
