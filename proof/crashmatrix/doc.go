// Package crashmatrix kills processes at every point of package failpoint, with a real database and a real Redis. It
// starts new processes on the same tables and then verifies the result. Its tests need the build tag failpoints:
//
//	go test -tags failpoints -run /claim-committed ./proof/crashmatrix -kills=100 -seed=7
//
// Each case has its own database, its own key prefix, and a series of victims. A victim is a process that records
// entries of all kinds and runs them. It starts and stops Run, and changes entries as people do.
package crashmatrix
