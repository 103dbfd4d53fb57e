package chaos

import "time"

// Config says how a run goes. The zero value is a minute of load with every fault, and a random seed's worth
// of nothing: seed 0.
type Config struct {
	Seed uint64 // draws the schedule of faults and each app's load; what happens then is up to the machine

	// Duration is how long load and faults last; longer when not every kind of fault has struck by then, which a
	// minute is enough for unless the machine is slow. Starting, coming to rest and checking add a minute or so. Default 60 s.
	Duration time.Duration

	Dir string // the history's; emptied first

	Rate      float64       // entries a second to record, over all apps. Default 300
	People    float64       // actions a second, over all apps. Default 3
	KillEvery time.Duration // mean time between entries that kill their process. Default 10 s; < 0: none

	// Failing and Poison are the shares of entries that fail a few times first, and that never succeed. Both
	// zero: each type has a plan of its own, much worse.
	Failing, Poison float64

	// Careful producers confirm every receipt and roll back to no savepoint. Others leave entries to be found by
	// looking, grace and interval later, and enqueue some that do not exist.
	Careful bool

	Faults Faults

	// Excused are demands of the checker that this run cannot meet, and why; see history.Run.
	Excused map[string]string

	// Sample, when set, is called every SampleEvery once the apps are at work, until the run's end.
	Sample      func(*stage)
	SampleEvery time.Duration
}

// Faults says how the nemesis strikes.
type Faults struct {
	None  bool
	Kinds []string      // only these; nil: all
	Most  int           // at once. Default 3
	Hold  time.Duration // mean time that one lasts. Default 2 s
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
