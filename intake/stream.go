package intake

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
)

// Stream is a consumer group of a Redis Stream. Redis, Stream and Group are required. Open says what becomes of its messages.
//
// Two of one Stream and Group on one log are one to it, whatever their Redis: of messages that have one id the second is taken for
// the first, and is lost. Servers, and database numbers of one, give like ids. See Server.
type Stream struct {
	Redis  redis.UniversalClient // the caller keeps and closes it. Run holds one of its connections for most of the time
	Stream string                // the key
	Group  string                // made if it is absent, at the beginning of the stream

	// Server tells this stream from one of the same name on another server, or under another database number, whose messages go into
	// the same log: any name that stands for it and never changes, for it is part of the idempotency keys. Given, changed or taken
	// away later it makes what is delivered again new, and done twice: let the group acknowledge everything first. Empty where
	// there is one.
	Server string

	// Consumer names this process within the group. No two that run at the same time may have the same name. Default: host,
	// process id and a random part, unique; such a name leaves the group when Run ends.
	Consumer string

	// Block is how long Redis is asked to wait for new messages; Run's end may take as long. Default 500 ms; at most 1 s.
	Block time.Duration

	// Idle is how long a consumer must have been silent about a message before others take it over. Longer than
	// Config.Timeout, or a slow batch is worked on twice, and one of the two in vain. Default 1 min.
	Idle time.Duration

	// Trim deletes what all groups of the stream have acknowledged, every quarter of Idle. Groups that are made later miss it.
	Trim bool
}

func (s Stream) withDefaults() Stream {
	if s.Consumer == "" {
		host, _ := os.Hostname() // the name is unique without it
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

// Open makes the Intake of the group's messages, as the function Open does of any source's. Nothing is sent to Redis before Run.
func (s Stream) Open(c *compensator.Compensator, cfg Config) (*Intake, error) {
	drawn := s.Consumer == ""
	s, cfg = s.withDefaults(), cfg.withDefaults()
	if err := errors.Join(s.validate(cfg.Timeout), cfg.validate()); err != nil {
		return nil, err
	}
	return Open(c, &group{Stream: s, drawn: drawn, log: cfg.Logger, own: true}, cfg)
}
