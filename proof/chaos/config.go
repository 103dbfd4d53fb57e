package chaos

import "time"

// Config configures a run. The zero value means seed 0 and one minute of load with every kind of fault.
type Config struct {
	Seed uint64 // determines the schedule of faults and the load of each app. The run itself is not deterministic

	// Duration is how long load and faults last, by default 60 s. The run continues until every kind of fault has hit
	// something once.
	Duration time.Duration

	Dir string // directory of the history; it is emptied first

	Rate      float64       // entries per second over all apps (default 300)
	People    float64       // actions per second over all apps (default 3)
	KillEvery time.Duration // mean time between entries that kill their process (default 10 s; negative: none)

	// Failing is the share of entries that fail once. Poison is the share of entries that never succeed. If both are
	// zero, each type has its own shares, and many more entries fail.
	Failing, Poison float64

	// If Careful is set, producers report every commit to the library and never roll back to a savepoint. Otherwise
	// producers leave some entries to the reconciler, which finds them after the grace period, and enqueue some entries
	// that do not exist.
	Careful bool

	Faults Faults

	// Excused holds the reasons why events cannot happen in this run, by name of the event. See history.Run.
	Excused map[string]string

	// Sample, when set, is called every SampleEvery.
	Sample      func(*stage)
	SampleEvery time.Duration
}

type Faults struct {
	None  bool
	Kinds []string      // nil: all kinds
	Most  int           // largest number of faults in one round (default 3)
	Hold  time.Duration // mean of the random part of a fault's duration (default 2 s)
	Calm  time.Duration // mean pause after a round of faults (default 1 s)
}

func (cfg Config) withDefaults() Config {
	setDefault(&cfg.Duration, time.Minute)
	setDefault(&cfg.Rate, 300)
	setDefault(&cfg.People, 3)
	setDefault(&cfg.KillEvery, 10*time.Second)
	setDefault(&cfg.Faults.Most, 3)
	setDefault(&cfg.Faults.Hold, 2*time.Second)
	setDefault(&cfg.Faults.Calm, time.Second)
	setDefault(&cfg.SampleEvery, time.Second)
	return cfg
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
