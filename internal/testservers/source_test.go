package testservers

import (
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNoServerNamesAllFourWays(t *testing.T) {
	t.Setenv("COMPENSATOR_SERVERS", "")
	t.Setenv("MYSQL_DSN", "")
	none := source{kind: "test", variable: "MYSQL_DSN", packages: []string{"no-such-package"}}
	none.docker = func([]string) (machine, string, error) { return nil, "", errors.New("no engine") }
	none.local = func([]string) (machine, string, error) { return nil, "", errors.New("no program") }
	_, err := none.start(nil)
	for _, part := range []string{"MYSQL_DSN is not set", "no engine", "no program", "apt-get install no-such-package"} {
		assert.ErrorContains(t, err, part)
	}
}

func TestServersComeByTheFirstWayThatWorks(t *testing.T) {
	t.Setenv("COMPENSATOR_SERVERS", "")
	tried := 0
	both := source{kind: "test", variable: "MYSQL_DSN"}
	both.docker = func([]string) (machine, string, error) { tried++; return nil, "", errors.New("no engine") }
	both.local = func(flags []string) (machine, string, error) {
		if len(flags) > 0 {
			return nil, "", errors.New("bad flags")
		}
		return givenServer{"local"}, "a program", nil
	}
	newServer, err := both.start(nil)
	require.NoError(t, err)
	assert.Equal(t, "local", newServer.addr())
	_, err = both.start([]string{"--bad"})
	assert.ErrorContains(t, err, "bad flags")
	assert.Equal(t, 1, tried, "a way that did not work was tried again")
}

func TestOneWayCanBeForced(t *testing.T) {
	works := func([]string) (machine, string, error) { return givenServer{"x"}, "x", nil }
	for _, only := range []string{"docker", "local", "install"} {
		t.Setenv("COMPENSATOR_SERVERS", only)
		forced := source{kind: "test", docker: works, local: works}
		_, err := forced.start(nil)
		require.NoError(t, err)
		assert.Equal(t, way(only), forced.chosenWay)
	}
	for _, only := range []string{"dsn", "magic"} {
		t.Setenv("COMPENSATOR_SERVERS", only)
		forced := source{kind: "test", variable: "MYSQL_DSN", docker: works, local: works}
		_, err := forced.start(nil)
		assert.ErrorContains(t, err, only)
	}
}

func TestDockerCountsOnlyWhenItsEngineAnswers(t *testing.T) {
	socket := filepath.Join(shortDir(t), "d.sock")
	t.Setenv("DOCKER_TLS_VERIFY", "")
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	assert.Error(t, pingDocker())

	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	status := http.StatusOK
	engine := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/_ping", r.URL.Path)
		w.WriteHeader(status)
	})}
	done := make(chan error)
	go func() { done <- engine.Serve(listener) }()
	assert.NoError(t, pingDocker())
	status = http.StatusInternalServerError
	assert.Error(t, pingDocker())
	require.NoError(t, engine.Close())
	<-done
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := serverDir()
	require.NoError(t, err)
	return dir
}
