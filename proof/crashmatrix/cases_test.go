//go:build failpoints

package crashmatrix

import (
	"io/fs"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/migrations"
)

// surroundings says what is special about the processes and tables of a case. A victim is a process that the case
// kills.
type surroundings string

const (
	usual     surroundings = ""
	bulkBlind surroundings = "bulk-blind" // For several entries, Insert returns no ids, as on MySQL.
	noRedis   surroundings = "no-redis"   // Redis does not answer.
	wheel     surroundings = "wheel"      // The processes use no Redis.
	forgotten surroundings = "forgotten"  // Redis loses all its data before each victim starts.
	crashed   surroundings = "crashed"    // Some entries have lost two, three or four leases.
	old       surroundings = "old"        // Some entries are old enough to be purged.
	beside    surroundings = "beside"     // A healthy process works on the same tables at the same time.
	unmade    surroundings = "unmade"     // The tables do not exist yet.
	streamed  surroundings = "streamed"   // Victims only take messages from a stream.
	adopting  surroundings = "adopting"   // Victims only import old rows.
	periodic  surroundings = "periodic"   // Victims record one entry for each slot of the periodic type "tick".
	keeping   surroundings = "keeping"    // Some entries are old enough to be purged, and victims purge them because of Config.Keep.
	inLine    surroundings = "in-line"    // Victims also record entries with an ordering key.
	limited   surroundings = "limited"    // The kinds of plain handlers have a limit.
	tenants   surroundings = "tenants"    // The same as limited, and each tenant has the limit for itself.
	rated     surroundings = "rated"      // Like tenants, but Limit.Concurrent is 0. A claim also takes starts for later claims.
	adjusted  surroundings = "adjusted"   // Like staffed, and limited as well. A person changes the limit.
	staffed   surroundings = "staffed"    // Config.Operations is set with Attempts, and people act through package admin.
	counting  surroundings = "counting"   // Operations.Statistics is set, and old rows of statistics wait to be folded.
	listed    surroundings = "listed"     // Operations.Instances is set. A victim is killed while it closes its Compensator.
	recorders surroundings = "recorders"  // Victims only record. A healthy process runs beside them, and the queue is known to hold all entries.
)

func (s surroundings) staffed() bool { return s == staffed || s == adjusted }

func (s surroundings) limited() bool {
	return s == limited || s == adjusted || s == tenants || s == rated
}

func (s surroundings) isBeside() bool { return s == beside || s == recorders }

type crash struct {
	point failpoint.Point
	most  int // largest number of times that a victim passes the point before it is killed
	in    surroundings
}

func (c crash) name() string {
	if c.in == usual {
		return string(c.point)
	}
	return string(c.point) + "," + string(c.in)
}

var matrix = []crash{
	{point: failpoint.EntryInserted, most: 20},
	{point: failpoint.CommitNext, most: 20},
	{point: failpoint.CommitDone, most: 20},
	{point: failpoint.CommitDone, most: 6, in: recorders},
	{point: failpoint.CommitReported, most: 12},
	{point: failpoint.CommitFound, most: 4},
	{point: failpoint.IDsResolved, most: 4, in: bulkBlind},
	{point: failpoint.EntryReadBack, most: 8},
	{point: failpoint.FreshClaimed, most: 4},
	{point: failpoint.EnqueueNext, most: 10},
	{point: failpoint.EnqueueNext, most: 6, in: recorders},
	{point: failpoint.Enqueued, most: 10},
	{point: failpoint.QueueClaimed, most: 10},
	{point: failpoint.QueueClaimed, most: 5, in: beside},
	{point: failpoint.DueRead, most: 8, in: noRedis},
	{point: failpoint.LimitLocked, most: 12, in: limited},
	{point: failpoint.ClaimLocked, most: 12},
	{point: failpoint.ClaimWritten, most: 12},
	{point: failpoint.PermitsWritten, most: 12, in: limited},
	{point: failpoint.ClaimCommitted, most: 12},
	{point: failpoint.ClaimCommitted, most: 12, in: limited},
	{point: failpoint.ClaimCommitted, most: 12, in: wheel},
	{point: failpoint.ClaimCommitted, most: 12, in: beside},
	{point: failpoint.ClaimReleased, most: 2},
	{point: failpoint.OverdueClaimed, most: 2},
	{point: failpoint.CrashesCounted, most: 3, in: crashed},
	{point: failpoint.AttemptStarted, most: 20},
	{point: failpoint.AttemptStarted, most: 12, in: crashed},
	{point: failpoint.AttemptStarted, most: 20, in: noRedis},
	{point: failpoint.BatchStarted, most: 3},
	{point: failpoint.BatchBroken, most: 6},
	{point: failpoint.BatchEnded, most: 3},
	{point: failpoint.BatchEnded, most: 2, in: beside},
	{point: failpoint.HandlerReturned, most: 20},
	{point: failpoint.CallReturned, most: 6},
	{point: failpoint.CallReturned, most: 4, in: beside},
	{point: failpoint.ThenReturned, most: 6},
	{point: failpoint.ResultInTx, most: 6},
	{point: failpoint.OutcomeInTransaction, most: 6},
	{point: failpoint.HandlerCommitted, most: 6},
	{point: failpoint.HandlerCommitted, most: 4, in: beside},
	{point: failpoint.LeaseRenewed, most: 2},
	{point: failpoint.OutcomesNext, most: 15},
	{point: failpoint.OutcomesPart, most: 20},
	{point: failpoint.OutcomesStored, most: 15},
	{point: failpoint.OutcomesStored, most: 15, in: wheel},
	{point: failpoint.OutcomesStored, most: 10, in: beside},
	{point: failpoint.QueueSettled, most: 10},
	{point: failpoint.OwnerChecked, most: 2, in: forgotten},
	{point: failpoint.LeadershipAsked, most: 2},
	{point: failpoint.LeadershipAsked, most: 2, in: beside},
	{point: failpoint.HeadsRead, most: 2},
	{point: failpoint.PageScanned, most: 5},
	{point: failpoint.PageScanned, most: 5, in: forgotten},
	{point: failpoint.RebuildBegun, most: 1, in: forgotten},
	{point: failpoint.RebuildEnqueued, most: 1, in: forgotten},
	{point: failpoint.MessagesClaimed, most: 2, in: streamed},
	{point: failpoint.MessagesRead, most: 4, in: streamed},
	{point: failpoint.MessagesWritten, most: 5, in: streamed},
	{point: failpoint.CommitDone, most: 5, in: streamed},
	{point: failpoint.BatchHalved, most: 3, in: streamed},
	{point: failpoint.AsideSettled, most: 3, in: streamed},
	{point: failpoint.MessagesSettled, most: 4, in: streamed},
	{point: failpoint.MessagesAcknowledged, most: 4, in: streamed},
	{point: failpoint.RowsTaken, most: 4, in: adopting},
	{point: failpoint.CommitDone, most: 4, in: adopting},
	{point: failpoint.RowsAdopted, most: 4, in: adopting},
	{point: failpoint.AuditWritten, most: 2},
	{point: failpoint.FaultsWritten, most: 1, in: crashed},
	{point: failpoint.ResultsWritten, most: 6},
	{point: failpoint.AttemptsWritten, most: 20, in: staffed},
	{point: failpoint.StatsAdded, most: 2, in: counting},
	{point: failpoint.BacklogCounted, most: 1, in: counting},
	{point: failpoint.InstanceEnds, most: 1, in: listed},
	{point: failpoint.CaseOpened, most: 6, in: staffed},
	{point: failpoint.AuditWritten, most: 3, in: staffed},
	{point: failpoint.BatchRecorded, most: 3, in: staffed},
	{point: failpoint.ChangeCommitted, most: 4, in: staffed},
	{point: failpoint.CaseClosed, most: 3, in: staffed},
	{point: failpoint.OperationWritten, most: 3, in: staffed},
	{point: failpoint.LimitChanged, most: 3, in: adjusted},
	{point: failpoint.PermitsWritten, most: 12, in: tenants},
	{point: failpoint.LimitLocked, most: 12, in: rated},
	{point: failpoint.PermitsWritten, most: 12, in: rated},
	{point: failpoint.ChangeCommitted, most: 5},
	{point: failpoint.PurgePart, most: 3, in: old},
	{point: failpoint.MarksRead, most: 6, in: periodic},
	{point: failpoint.MarkMoved, most: 6, in: periodic},
	{point: failpoint.CommitNext, most: 20, in: periodic},
	{point: failpoint.CommitDone, most: 20, in: periodic},
	{point: failpoint.SlotTaken, most: 1, in: keeping},
	{point: failpoint.PurgePart, most: 3, in: keeping},
	{point: failpoint.OrderingJoined, most: 12, in: inLine},
	{point: failpoint.OrderingRead, most: 12, in: inLine},
	{point: failpoint.OrderingNoted, most: 8, in: inLine},
	{point: failpoint.OrderingBlocked, most: 8, in: inLine},
	{point: failpoint.OrderingLeft, most: 8, in: inLine},
	{point: failpoint.OrderingMoved, most: 8, in: inLine},
	{point: failpoint.OrderingFollowed, most: 4, in: inLine},
	{point: failpoint.OutcomesStored, most: 15, in: inLine},
	{point: failpoint.MigrationPart, most: migrationParts(), in: unmade},
	{point: failpoint.StopBegun, most: 2},
	{point: failpoint.LoopsEnded, most: 2},
	{point: failpoint.HandlersEnded, most: 2},
	{point: failpoint.OutcomesDrained, most: 2},
}

func migrationParts() int {
	files, err := fs.Glob(migrations.MySQL, "*/*.sql")
	if err != nil {
		panic(err)
	}
	return len(files)
}
