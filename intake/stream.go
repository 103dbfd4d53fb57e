package intake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
)

// Stream is a consumer group of a Redis Stream. Redis, Stream and Group are required. The method Open takes the Config
// for the messages of the group.
//
// If two Streams have the same Stream, Group and Server, a log takes them for one source, even if they are on two Redis
// servers. If a message of each has the same id, the second message counts as a duplicate and is lost. Equal ids occur,
// because each server, and each database number of a server, generates ids by itself. So give the two Streams different
// names in Server.
type Stream struct {
	Redis  redis.UniversalClient // client, which the caller closes; Run uses one of its connections most of the time
	Stream string                // the key of the stream
	Group  string                // name of the group; Run creates it at the beginning of the stream if it does not exist

	// Server distinguishes this stream from a stream of the same name on another server, or under another database
	// number, when both go into one log. It can be any name that never changes. Leave it empty if there is only one
	// such stream.
	//
	// Server is part of the idempotency keys. If you set, change or remove it later, redelivered messages count as new
	// and are processed twice. So let the group acknowledge all messages before you change it.
	Server string

	// Consumer is the name of this process within the group. Two running processes must not share a name. By default
	// the name consists of the host, the process id and a random part. When Run ends, it removes a default name from
	// the group.
	Consumer string

	// Block is how long Redis waits for new messages in one call. Run may take that long to end. Default 500 ms, at
	// most 1 s.
	Block time.Duration

	// Idle is how long a message must have been pending before another consumer takes over the message. Idle must be
	// longer than Config.Timeout. Otherwise two consumers would process a slow batch, and one of them would work in
	// vain. The default is 1 min.
	Idle time.Duration

	// If Trim is set, each consumer deletes messages from the stream at intervals of a quarter of Idle. It deletes only
	// messages that all groups of the stream have acknowledged. A group that is created later does not get these
	// messages.
	Trim bool
}

func (s Stream) withDefaults() Stream {
	if s.Consumer == "" {
		// If the host is unknown, the random part still makes the name unique.
		host, _ := os.Hostname()
		s.Consumer = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:10]))
	}
	setDefault(&s.Block, 500*time.Millisecond)
	setDefault(&s.Idle, time.Minute)
	return s
}

func (s Stream) validate(timeout time.Duration) error {
	var p problems
	p.refuse(s.Redis == nil, "Redis", "is missing")
	p.refuse(s.Stream == "", "Stream", "is missing")
	p.refuse(s.Group == "", "Group", "is missing")
	p.atLeast("Block", s.Block, time.Millisecond)
	p.refuse(s.Block > time.Second, "Block", fmt.Sprintf("%v is more than 1s", s.Block))
	p.atLeast("Idle", s.Idle, 10*time.Millisecond)
	p.refuse(s.Idle <= timeout, "Idle", fmt.Sprintf("%v is not longer than Timeout, %v", s.Idle, timeout))
	return errors.Join(p...)
}

// Open returns the Intake of the group. It works like the function Open for other sources. It sends nothing to Redis
// before Run.
func (s Stream) Open(ctx context.Context, c *compensator.Compensator, cfg Config) (*Intake, error) {
	drawn := s.Consumer == ""
	s, cfg = s.withDefaults(), cfg.withDefaults()
	if err := errors.Join(s.validate(cfg.Timeout), cfg.validate()); err != nil {
		return nil, err
	}
	return Open(ctx, c, &group{Stream: s, nameDrawn: drawn, log: cfg.Logger, isOwn: true}, cfg)
}
