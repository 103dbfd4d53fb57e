package testservers

import "syscall"

// The kernel kills the child when the thread that started it ends. While the tests run, this thread does not end,
// because no goroutine is locked to it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
