package compensator

import (
	"sync"
	"sync/atomic"
)

// registry is what recording and reading know of this process's types, also of declared ones. Types are added before Run,
// possibly while entries are being recorded already.
type registry struct {
	mu      sync.RWMutex // guards the fields below
	codecs  map[string]Codec
	strict  map[string]bool // types that refuse other content under an idempotent id
	blurred map[string]bool // types of which other content was seen
	sealers map[string]SealingCodec

	seals atomic.Bool // some type does
}

func newRegistry() *registry {
	return &registry{codecs: make(map[string]Codec), strict: make(map[string]bool), blurred: make(map[string]bool), sealers: make(map[string]SealingCodec)}
}

// handles notes the codec of a type that has a handler here.
func (r *registry) handles(name string, codec Codec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.codecs[name] = codec
}

// reads notes the codec of a type that is declared here; a handler's goes before it.
func (r *registry) reads(name string, codec Codec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, handled := r.codecs[name]; !handled {
		r.codecs[name] = codec
	}
}

// codec is nil for a type that is not known here.
func (r *registry) codec(name string) Codec {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.codecs[name]
}

// sealsBy notes a type's codec, if it seals.
func (r *registry) sealsBy(name string, codec Codec) {
	sealing, ok := codec.(SealingCodec)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealers[name] = sealing
	r.seals.Store(true)
}

// sealing is nil for a type whose contents are stored as they are.
func (r *registry) sealing(name string) SealingCodec {
	if r == nil || !r.seals.Load() {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.sealers[name]
}

// refuseOtherContent notes a type's TypeConfig.RefuseOtherContent.
func (r *registry) refuseOtherContent(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.strict[name] = true
}

func (r *registry) refusesOtherContent(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.strict[name]
}

// firstOtherContent is true once for each type.
func (r *registry) firstOtherContent(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blurred[name] {
		return false
	}
	r.blurred[name] = true
	return true
}
