package delay

import "syscall"

// childAttributes lets no child outlive the benchmark, however that ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
