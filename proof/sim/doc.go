// Package sim runs whole lives of several instances of the production engine in one testing/synctest bubble:
// over one store and one queue in memory, with every statement and script a step that passes a turnstile, and a
// seed that decides when each step is done, which fail and how, which instance dies when, and what handlers,
// producers and people do. What must hold is asserted at every transition and every attempt; then everything
// is healed, and every entry has to come to rest.
//
// A seed replays exactly, which TestSameSeedWalksTheSameWay holds it to, but for interruptions by the runtime on a busy
// machine. See docs/reliability.md, and sim_test.go for how to run one.
package sim
