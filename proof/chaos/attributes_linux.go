package chaos

import "syscall"

// childAttributes makes the kernel kill every app when the driver ends. A frozen app does not see the end of its
// orders.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
