package testservers

import "syscall"

// childAttributes makes the kernel kill the child when the tests end, even if they are killed. The kernel watches the
// thread that started the child. Go ends a thread only when a goroutine locked to it returns.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
