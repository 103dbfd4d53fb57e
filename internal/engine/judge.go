package engine

import "github.com/compensator-go/compensator/observe"

// Judgement is what the error of an attempt says.
type Judgement struct {
	Verdict  observe.Verdict
	Library  bool // the library or its database has failed, and the error says nothing about the handler
	Uncalled bool // the handler was not called, or could not decode the content
}

// JudgementOf reads the error of an attempt.
func JudgementOf(err error) Judgement {
	v := judged(err)
	return Judgement{
		Verdict:  VerdictOf(err),
		Library:  v.ours || v.kind == serverFault || v.kind == serverDown,
		Uncalled: v.free || v.undecodable,
	}
}
