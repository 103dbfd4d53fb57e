package testservers

import "syscall"

// childAttributes lets no child outlive the tests, even when they are killed. The kernel watches the thread
// that started the child; Go ends a thread only when a goroutine locked to it returns.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
