package testservers

import "syscall"

// childAttributes makes the kernel kill the child when the tests end, even if they are killed. The kernel kills it when the thread
// that started it ends. While the tests run, this thread does not end, because no goroutine is locked to it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
