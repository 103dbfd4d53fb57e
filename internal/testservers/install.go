package testservers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// aptInstall holds a lock, so that test processes install one after the other.
func aptInstall(packages ...string) error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return errors.New("no apt-get: not Debian")
	}
	home, err := homeDir()
	if err != nil {
		return err
	}
	lock, err := lockFile(filepath.Join(home, "install.lock"), true)
	if err != nil {
		return err
	}
	defer lock.Close()
	fmt.Fprintf(os.Stderr, "testservers: apt-get install %s\n", strings.Join(packages, " "))
	removePolicy, err := denyStarts()
	if err != nil {
		return err
	}
	defer removePolicy()
	if err := runApt(apt, "update"); err != nil {
		return err
	}
	return runApt(apt, append([]string{"install", "-y", "--no-install-recommends"}, packages...)...)
}

func runApt(apt string, args ...string) error {
	cmd := exec.Command(apt, append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w:\n%s", args[0], err, lastLines(string(output), 10))
	}
	return nil
}

// policy is the script that Debian's packages ask whether they may start their service.
const policy = "/usr/sbin/policy-rc.d"

// denyStarts keeps installed packages from starting their services, until removePolicy is called. If the machine has a policy
// already, that policy stays.
func denyStarts() (removePolicy func(), err error) {
	file, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = file.WriteString("#!/bin/sh\nexit 101\n")
	return func() { _ = os.Remove(policy) }, errors.Join(err, file.Close())
}
