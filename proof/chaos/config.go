package chaos

import "time"

// Config configures a run. The zero value is one minute of load with every fault and seed 0.
type Config struct {
	Seed uint64 // draws the schedule of faults and the load of each app; the run itself is not deterministic

	// Duration is how long load and faults last. The run continues until every kind of fault has struck once, but a
	// minute is enough unless the machine is slow. Starting, coming to rest and checking add about a minute. Default 60
	// s.
	Duration time.Duration

	Dir string // directory of the history, emptied first

	Rate      float64       // entries recorded per second, over all apps. Default 300
	People    float64       // actions per second, over all apps. Default 3
	KillEvery time.Duration // mean time between entries that kill their process. Default 10 s; negative: none

	// Failing is the share of entries that fail once. Poison is the share of entries that never succeed. When both are
	// zero, each type has its own plan, with many more failures.
	Failing, Poison float64

	// Careful makes producers confirm every receipt and never roll back to a savepoint. Other producers leave some
	// entries to the reconciler, which finds them after the grace period. They also enqueue some entries that do not
	// exist.
	Careful bool

	Faults Faults

	// Excused maps demands of the checker that this run cannot meet to the reason; see history.Run.
	Excused map[string]string

	// Sample, when set, is called every SampleEvery from when the apps are ready until the run's end.
	Sample      func(*stage)
	SampleEvery time.Duration
}

// Faults configures the nemesis.
type Faults struct {
	None  bool
	Kinds []string      // only these kinds; nil: all kinds
	Most  int           // largest number of faults at once. Default 3
	Hold  time.Duration // mean duration of a fault. Default 2 s
	Calm  time.Duration // mean time between two rounds of faults. Default 1 s
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
