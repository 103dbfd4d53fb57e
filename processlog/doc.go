// Package processlog holds the words and the contracts of the library: what an entry is called and where it stands, its row
// and its outcomes, what services and people do to it and the rules of that; what is asked of a Store, the table of entries,
// and of a Queue, which says when one is due; of Operations, what people see to, where a service has them do so.
//
// The store is the truth and the queue a hint (G10). Store is five contracts, by who asks: Recorder, whoever records; Worker,
// whoever works entries off; Keeper, services and people; Calendar, periodic types; Turns, serial types. Only durations cross
// either border, but for the slots of a Calendar: each side has a clock of its own (G9).
//
// Whoever writes a store or a queue imports this and nothing else, and is right once suite.TestStore or suite.TestQueue of
// package compensatortest/suite passes. Rooms that speak of entries import it, and it imports none of them. There is no
// SQL here, no Redis, and no goroutine. The root package gives users those of its words that they speak of.
package processlog
