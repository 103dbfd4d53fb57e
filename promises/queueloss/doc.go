// Package queueloss tests that Redis is only a hint (G10).
package queueloss
