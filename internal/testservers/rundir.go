package testservers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Other users must not be able to write in the home directory, because a server will run on its data.
func homeDir() (string, error) {
	temp, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return "", err
	}
	dir := filepath.Join(temp, fmt.Sprintf("compensator-testservers-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(owner.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s is not a directory that only this user may write", dir)
	}
	return dir, nil
}

// The operating system releases the lock when this process ends. If wait is false and another process holds the lock,
// lockFile returns an error.
func lockFile(path string, wait bool) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	operation := syscall.LOCK_EX
	if !wait {
		operation |= syscall.LOCK_NB
	}
	for {
		err = syscall.Flock(int(file.Fd()), operation)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// run is the directory of this process's servers.
var run struct {
	mu   sync.Mutex // guards the fields
	dir  string
	lock *os.File // held for the life of this process, so that other processes do not delete dir
}

// The first call of runDir creates the directory, and removes directories of killed processes.
func runDir() (string, error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.dir != "" {
		return run.dir, nil
	}
	home, err := homeDir()
	if err != nil {
		return "", err
	}
	sweepLock, err := lockFile(filepath.Join(home, "sweep.lock"), true)
	if err != nil {
		return "", err
	}
	defer sweepLock.Close()
	removeOldDirs(home)
	dir, err := os.MkdirTemp(home, "run-")
	if err != nil {
		return "", err
	}
	run.lock, err = lockFile(filepath.Join(dir, "lock"), true)
	if err != nil {
		return "", err
	}
	run.dir = dir
	return dir, nil
}

// The caller holds the sweep lock. Run directories are created only under that lock.
func removeOldDirs(home string) {
	dirs, _ := filepath.Glob(filepath.Join(home, "run-*"))
	for _, dir := range dirs {
		lock, err := lockFile(filepath.Join(dir, "lock"), false)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}
}

func serverDir() (string, error) {
	dir, err := runDir()
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(dir, "")
}

func removeRunDir() {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.dir == "" {
		return
	}
	_ = os.RemoveAll(run.dir)
	_ = run.lock.Close()
	run.dir, run.lock = "", nil
}
