// Package servers tests the promises on different servers and sessions (conditions C1 and C6).
package servers
