package compensator

import "github.com/compensator-go/compensator/processlog"

type (
	EntryID       = processlog.ID
	State         = processlog.State
	EndedBy       = processlog.EndedBy
	Filter        = processlog.Filter
	CountFilter   = processlog.CountFilter
	Count         = processlog.Count
	AuditRecord   = processlog.AuditRecord
	AuditState    = processlog.AuditState
	ByHand        = processlog.ByHand
	Action        = processlog.Action
	Change        = processlog.Change
	Tx            = processlog.Tx
	Transaction   = processlog.Transaction
	Token         = processlog.Token
	Store         = processlog.Store
	Draft         = processlog.Draft
	Inserted      = processlog.Inserted
	Row           = processlog.Row
	Version       = processlog.Version
	Wanted        = processlog.Wanted
	Claimed       = processlog.Claimed
	Held          = processlog.Held
	Outcome       = processlog.Outcome
	Settled       = processlog.Settled
	Head          = processlog.Head
	Window        = processlog.Window
	Scheduled     = processlog.Scheduled
	Queue         = processlog.Queue
	Announcement  = processlog.Announcement
	AnnounceRules = processlog.AnnounceRules
	Leased        = processlog.Leased
	QueueOutcome  = processlog.QueueOutcome
	Ref           = processlog.Ref
	IdempotentID  = processlog.IdempotentID
)

const (
	Pending            = processlog.Pending
	Retrying           = processlog.Retrying
	Dead               = processlog.Dead
	Compensating       = processlog.Compensating
	Succeeded          = processlog.Succeeded
	Compensated        = processlog.Compensated
	Cancelled          = processlog.Cancelled
	SettledByHand      = processlog.SettledByHand
	EndedByHandler     = processlog.EndedByHandler
	EndedByComplete    = processlog.EndedByComplete
	EndedByPermanent   = processlog.EndedByPermanent
	EndedByExhausted   = processlog.EndedByExhausted
	EndedByCrash       = processlog.EndedByCrash
	EndedByPerson      = processlog.EndedByPerson
	ActionComplete     = processlog.ActionComplete
	ActionCancel       = processlog.ActionCancel
	ActionReschedule   = processlog.ActionReschedule
	ActionRequeue      = processlog.ActionRequeue
	ActionSettleByHand = processlog.ActionSettleByHand
	ActionAcceptLoss   = processlog.ActionAcceptLoss
	ActionPurge        = processlog.ActionPurge
	Never              = processlog.Never
)

var States = processlog.States

func RowID(row uint64) EntryID { return processlog.RowID(row) }

// ParseEntryID reads what EntryID.String wrote, and no other spelling of it.
func ParseEntryID(s string) (EntryID, error) { return processlog.ParseID(s) }
