package compensator

import (
	"sync"
	"sync/atomic"
)

// registry gets types before Run, while other goroutines may already record entries.
type registry struct {
	mu            sync.RWMutex // guards the fields below
	codecs        map[string]Codec
	refusesOther  map[string]bool // types with RefuseOtherContent
	reportedOther map[string]bool // types for which the library saw a duplicate with other content
	sealers       map[string]SealingCodec
	facts         map[string]typeFacts
	afterBatch    map[string]func(e *Entry) string // HandlerConfig.AfterBatch

	anySealer atomic.Bool // at least one type has a SealingCodec
}

func newRegistry() *registry {
	return &registry{codecs: make(map[string]Codec), refusesOther: make(map[string]bool), reportedOther: make(map[string]bool), sealers: make(map[string]SealingCodec),
		facts: make(map[string]typeFacts), afterBatch: make(map[string]func(e *Entry) string)}
}

func (r *registry) addHandlerCodec(name string, codec Codec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.codecs[name] = codec
}

// addDeclaredCodec does not replace the codec of a handler.
func (r *registry) addDeclaredCodec(name string, codec Codec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, handled := r.codecs[name]; !handled {
		r.codecs[name] = codec
	}
}

func (r *registry) codec(name string) Codec {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.codecs[name]
}

func (r *registry) addSealer(name string, codec Codec) {
	sealing, ok := codec.(SealingCodec)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealers[name] = sealing
	r.anySealer.Store(true)
}

func (r *registry) sealer(name string) SealingCodec {
	if r == nil || !r.anySealer.Load() {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.sealers[name]
}

func (r *registry) refuseOtherContent(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusesOther[name] = true
}

func (r *registry) refusesOtherContent(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.refusesOther[name]
}

func (r *registry) firstOtherContent(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reportedOther[name] {
		return false
	}
	r.reportedOther[name] = true
	return true
}

// addFacts lets the facts of a handler replace those of a declaration.
func (r *registry) addFacts(name string, facts typeFacts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts[name] = facts
}

func (r *registry) factsOf(name string) (facts typeFacts, known bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	facts, known = r.facts[name]
	return facts, known
}

func (r *registry) addAfterBatch(name string, batchOf func(e *Entry) string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.afterBatch[name] = batchOf
}

func (r *registry) afterBatchOf(name string) func(e *Entry) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.afterBatch[name]
}
