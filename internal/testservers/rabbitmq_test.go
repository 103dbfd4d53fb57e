package testservers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKilledRabbitMQComesBackOnItsAddressWithItsData(t *testing.T) {
	t.Parallel()
	server := NewRabbitMQ(t, "max_message_size = 4321")
	require.NoError(t, probeRabbit(server.Addr(), ""))
	server.Control(t, "add_user", "somebody", "secret")
	assert.Contains(t, server.Control(t, "environment"), "{max_message_size,4321}", "the settings hold")
	server.Kill()
	require.Error(t, probeRabbit(server.Addr(), ""), "a killed broker answers")
	server.Restart(t)
	assert.Contains(t, server.Control(t, "list_users"), "somebody")
	server.Stop()
	require.Error(t, probeRabbit(server.Addr(), ""), "a stopped broker answers")
}

func TestAStrangersBrokerIsNotTakenForOurs(t *testing.T) {
	t.Parallel()
	assert.ErrorIs(t, probeRabbit(SharedRabbitMQ(t).Addr(), "somebody else's"), errPortTaken)
	assert.Error(t, probeRabbit(NewRedis(t).Addr(), ""), "no broker at all")
}

func TestGivenAddressServesAsTheSharedRabbitMQ(t *testing.T) {
	own := SharedRabbitMQ(t)
	t.Setenv("COMPENSATOR_SERVERS", "dsn")
	t.Setenv("AMQP_URL", own.URLAt(own.Addr()))
	server, err := sharedRabbit()
	require.NoError(t, err)
	assert.Equal(t, own.URL(), server.URL())
	assert.Error(t, server.machine.kill())
	for _, wrong := range []string{"http://localhost", "amqp://", "amqp://guest:guest@127.0.0.1:1/"} {
		t.Setenv("AMQP_URL", wrong)
		_, err = sharedRabbit()
		assert.ErrorContains(t, err, "AMQP_URL")
	}
}

func TestSharedRabbitMQIsNotReconfigured(t *testing.T) {
	server := SharedRabbitMQ(t)
	assert.Panics(t, func() { server.Control(t, "add_user", "somebody", "secret") })
}
